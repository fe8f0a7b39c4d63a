//! The part of SPDY/3.1 that a server of exec needs: the API server and kubectl use it to stream to the kubelet.
//!
//! A frame has a head of 8 bytes and a body. Control frames begin with a set bit, version 3 and a type; data frames with the stream's ID.
//! The header blocks of each direction form one zlib stream, primed with a dictionary. Flow control is left out, because the other ends do
//! not use it.

use std::collections::BTreeMap;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

/// Length of a frame's head, in bytes.
const HEAD: usize = 8;
/// Version in control frames.
const VERSION: u16 = 3;
/// Flag of the last frame of a stream.
const FIN: u8 = 1;
/// Types of control frames.
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
/// Longest header block after decompression, in bytes; ours have a few dozen.
const HEADERS_LIMIT: usize = 64 * 1024;
/// Length of the head of a zlib stream with a dictionary: two bytes and the dictionary's checksum.
const ZLIB_HEAD: usize = 6;
/// Maximum distance of a back reference in deflate, in bytes.
const WINDOW: usize = 32 * 1024;

/// A frame from the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A stream begins.
    Open {
        /// ID of the stream.
        stream: u32,
        /// Its headers, names in lower case.
        headers: BTreeMap<String, String>,
    },
    /// Bytes of a stream.
    Data {
        /// ID of the stream.
        stream: u32,
        /// The bytes.
        bytes: Vec<u8>,
        /// Whether these bytes are the last.
        last: bool,
    },
    /// The client aborts a stream.
    Reset {
        /// ID of the stream.
        stream: u32,
    },
    /// A ping, which has to be sent back.
    Ping {
        /// Distinguishes pings.
        id: u32,
    },
    /// The client opens no more streams and is about to close the connection.
    GoAway,
    /// A frame that a server of exec can ignore.
    Other,
}

/// Why the client's bytes are invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A frame has another version of the protocol.
    #[error("SPDY version {0} instead of 3")]
    Version(u16),
    /// A control frame is too short for its type.
    #[error("short frame of type {0}")]
    Short(u16),
    /// Headers could not be decompressed or parsed.
    #[error("broken header block")]
    Headers,
}

/// Decodes the client's bytes into frames.
#[derive(Default)]
pub struct Decoder {
    pending: Vec<u8>,
    headers: HeaderReader,
}

impl Decoder {
    /// Adds received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Returns the next frame, or none until all of it has been received.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Error> {
        let Some(head) = self.pending.first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let [first, second, third, fourth, flags, length @ ..] = *head;
        let length = length
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte));
        let end = HEAD + length;
        if self.pending.len() < end {
            return Ok(None);
        }
        let body: Vec<u8> = self.pending.drain(..end).skip(HEAD).collect();
        if first & 0x80 == 0 {
            return Ok(Some(Frame::Data {
                stream: u32::from_be_bytes([first, second, third, fourth]),
                bytes: body,
                last: flags & FIN != 0,
            }));
        }
        let version = u16::from_be_bytes([first & 0x7f, second]);
        if version != VERSION {
            return Err(Error::Version(version));
        }
        self.control(u16::from_be_bytes([third, fourth]), &body)
            .map(Some)
    }

    fn control(&mut self, kind: u16, body: &[u8]) -> Result<Frame, Error> {
        let number = || {
            body.first_chunk::<4>()
                .map(|bytes| u32::from_be_bytes(*bytes) & 0x7fff_ffff)
                .ok_or(Error::Short(kind))
        };
        match kind {
            SYN_STREAM => {
                // Stream, associated stream, priority and slot come before the headers.
                let block = body.get(10..).ok_or(Error::Short(kind))?;
                Ok(Frame::Open {
                    stream: number()?,
                    headers: self.headers.read(block)?,
                })
            }
            RST_STREAM => Ok(Frame::Reset { stream: number()? }),
            PING => Ok(Frame::Ping { id: number()? }),
            GOAWAY => Ok(Frame::GoAway),
            _ => Ok(Frame::Other),
        }
    }
}

/// The client's header blocks: one compressed stream over the whole connection.
struct HeaderReader {
    inflater: Box<DecompressorOxide>,
    /// The last decompressed bytes, as a ring; it begins with the dictionary.
    window: Vec<u8>,
    at: usize,
    started: bool,
}

impl Default for HeaderReader {
    fn default() -> Self {
        let mut window = dictionary();
        let at = window.len();
        window.resize(WINDOW, 0);
        Self {
            inflater: Box::default(),
            window,
            at,
            started: false,
        }
    }
}

impl HeaderReader {
    fn read(&mut self, block: &[u8]) -> Result<BTreeMap<String, String>, Error> {
        let block = if self.started {
            block
        } else {
            self.started = true;
            block.get(ZLIB_HEAD..).ok_or(Error::Headers)?
        };
        parse_headers(&self.inflate(block)?).ok_or(Error::Headers)
    }

    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, Error> {
        let mut plain = Vec::new();
        loop {
            let (status, read, written) = decompress(
                &mut self.inflater,
                block,
                &mut self.window,
                self.at,
                TINFL_FLAG_HAS_MORE_INPUT,
            );
            block = &block[read..];
            plain.extend_from_slice(&self.window[self.at..self.at + written]);
            self.at = (self.at + written) % WINDOW;
            match status {
                TINFLStatus::NeedsMoreInput | TINFLStatus::Done => return Ok(plain),
                TINFLStatus::HasMoreOutput if plain.len() <= HEADERS_LIMIT => {}
                _ => return Err(Error::Headers),
            }
        }
    }
}

/// Parses headers: the number of pairs, then each name and value, preceded by its length.
fn parse_headers(plain: &[u8]) -> Option<BTreeMap<String, String>> {
    let mut rest = plain;
    let number = |rest: &mut &[u8]| {
        let (bytes, tail) = rest.split_first_chunk::<4>()?;
        *rest = tail;
        Some(u32::from_be_bytes(*bytes) as usize)
    };
    let text = |rest: &mut &[u8]| {
        let length = number(rest)?;
        let (bytes, tail) = rest.split_at_checked(length)?;
        *rest = tail;
        String::from_utf8(bytes.to_vec()).ok()
    };
    let (count, tail) = rest.split_first_chunk::<4>()?;
    rest = tail;
    (0..u32::from_be_bytes(*count))
        .map(|_| Some((text(&mut rest)?.to_ascii_lowercase(), text(&mut rest)?)))
        .collect()
}

/// Returns a frame that accepts a stream, without headers. The first of these on a connection begins the compressed stream.
pub fn reply(stream: u32, first: bool) -> Vec<u8> {
    let mut body = stream.to_be_bytes().to_vec();
    if first {
        // A zlib head without a dictionary, which readers accept as well.
        body.extend_from_slice(&[0x78, 0x01]);
    }
    // An uncompressed block of four zero bytes: no headers. Its length is followed by the complement of its length.
    body.extend_from_slice(&[0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0]);
    // An empty block, at which readers return what they have decompressed.
    body.extend_from_slice(&[0, 0, 0, 0xff, 0xff]);
    control(SYN_REPLY, &body)
}

/// Returns a frame with bytes of a stream.
pub fn data(stream: u32, bytes: &[u8], last: bool) -> Vec<u8> {
    let mut frame = stream.to_be_bytes().to_vec();
    push_length(&mut frame, if last { FIN } else { 0 }, bytes.len());
    frame.extend_from_slice(bytes);
    frame
}

/// Returns the answer to a ping.
pub fn ping(id: u32) -> Vec<u8> {
    control(PING, &id.to_be_bytes())
}

/// Returns a frame for the regular end of the connection; `last` is the last stream of the client.
pub fn go_away(last: u32) -> Vec<u8> {
    let mut body = last.to_be_bytes().to_vec();
    body.extend_from_slice(&0_u32.to_be_bytes());
    control(GOAWAY, &body)
}

fn control(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = (0x8000 | VERSION).to_be_bytes().to_vec();
    frame.extend_from_slice(&kind.to_be_bytes());
    push_length(&mut frame, 0, body.len());
    frame.extend_from_slice(body);
    frame
}

fn push_length(frame: &mut Vec<u8>, flags: u8, length: usize) {
    // The length has 24 bits; frames of this module are far shorter.
    let [_, x, y, z] = (length as u32).to_be_bytes();
    frame.extend_from_slice(&[flags, x, y, z]);
}

/// Returns the dictionary of SPDY/3 header blocks (draft-mbelshe-httpbis-spdy-00, 2.6.10.1): words with their lengths, then text.
fn dictionary() -> Vec<u8> {
    const WORDS: &[&str] = &[
        "options",
        "head",
        "post",
        "put",
        "delete",
        "trace",
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "accept-ranges",
        "age",
        "allow",
        "authorization",
        "cache-control",
        "connection",
        "content-base",
        "content-encoding",
        "content-language",
        "content-length",
        "content-location",
        "content-md5",
        "content-range",
        "content-type",
        "date",
        "etag",
        "expect",
        "expires",
        "from",
        "host",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-range",
        "if-unmodified-since",
        "last-modified",
        "location",
        "max-forwards",
        "pragma",
        "proxy-authenticate",
        "proxy-authorization",
        "range",
        "referer",
        "retry-after",
        "server",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "vary",
        "via",
        "warning",
        "www-authenticate",
        "method",
        "get",
        "status",
        "200 OK",
        "version",
        "HTTP/1.1",
        "url",
        "public",
        "set-cookie",
        "keep-alive",
        "origin",
    ];
    const TEXT: &str = "100101201202205206300302303304305306307402405406407408409410411412413\
        414415416417502504505203 Non-Authoritative Information204 No Content301 Moved Permanently\
        400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error\
        501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec \
        00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,\
        image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,public\
        privatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";
    let mut dictionary = Vec::with_capacity(1423);
    for word in WORDS {
        dictionary.extend_from_slice(&(word.len() as u32).to_be_bytes());
        dictionary.extend_from_slice(word.as_bytes());
    }
    dictionary.extend_from_slice(TEXT.as_bytes());
    dictionary
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// The end of every header block: an empty block that brings the output to a byte boundary.
    const FLUSHED: &[u8] = &[0, 0, 0, 0xff, 0xff];

    fn mk_block(headers: &[(&str, &str)], first: bool) -> Vec<u8> {
        let mut plain = (headers.len() as u32).to_be_bytes().to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend_from_slice(&(text.len() as u32).to_be_bytes());
            plain.extend_from_slice(text.as_bytes());
        }
        let mut block = if first {
            vec![0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2]
        } else {
            Vec::new()
        };
        let length = plain.len() as u16;
        block.push(0);
        block.extend_from_slice(&length.to_le_bytes());
        block.extend_from_slice(&(!length).to_le_bytes());
        block.extend_from_slice(&plain);
        block.extend_from_slice(FLUSHED);
        block
    }

    fn mk_open(stream: u32, block: &[u8]) -> Vec<u8> {
        let mut body = stream.to_be_bytes().to_vec();
        body.extend_from_slice(&[0; 6]);
        body.extend_from_slice(block);
        control(SYN_STREAM, &body)
    }

    #[test]
    fn dictionary_has_the_checksum_that_zlib_streams_name() {
        let (mut a, mut b) = (1_u32, 0_u32);
        for byte in dictionary() {
            a = (a + u32::from(byte)) % 65521;
            b = (b + a) % 65521;
        }
        assert_eq!(b << 16 | a, 0xe3c6_a7c2);
    }

    #[test]
    fn streams_open_one_after_another_on_one_compressed_stream() {
        let mut decoder = Decoder::default();
        for (stream, kind) in [(1, "error"), (3, "stdout")] {
            let block = mk_block(&[("Streamtype", kind)], stream == 1);
            decoder.feed(&mk_open(stream, &block));
            let headers = [("streamtype".to_owned(), kind.to_owned())].into();
            assert_eq!(
                decoder.next_frame(),
                Ok(Some(Frame::Open { stream, headers }))
            );
        }
        assert_eq!(decoder.next_frame(), Ok(None));
    }

    #[test]
    fn headers_compressed_against_the_dictionary_are_read() {
        // Produced by zlib with the dictionary, and flushed.
        let block = [
            0x78, 0xf9, 0xe3, 0xc6, 0xa7, 0xc2, 0x02, 0xe5, 0x0e, 0x70, 0x3a, 0x2b, 0x29, 0x4a,
            0x4d, 0xcc, 0x85, 0x16, 0x25, 0xac, 0xa9, 0xa0, 0x80, 0xc6, 0x5e, 0xb0, 0x0a, 0x62,
            0xd8, 0x07, 0x00, 0x00, 0x00, 0xff, 0xff,
        ];
        let mut reader = HeaderReader::default();
        let headers = reader.read(&block).unwrap();
        assert_eq!(headers["streamtype"], "error");
        assert_eq!(headers["accept-encoding"], "gzip,deflate,sdch");
    }

    #[test]
    fn frames_are_found_byte_by_byte() {
        let mut decoder = Decoder::default();
        let frame = data(5, b"abc", true);
        for byte in &frame[..frame.len() - 1] {
            decoder.feed(&[*byte]);
            assert_eq!(decoder.next_frame(), Ok(None));
        }
        decoder.feed(&frame[frame.len() - 1..]);
        let expected = Frame::Data {
            stream: 5,
            bytes: b"abc".to_vec(),
            last: true,
        };
        assert_eq!(decoder.next_frame(), Ok(Some(expected)));
    }

    #[rstest]
    #[case::ping(ping(7), Frame::Ping { id: 7 })]
    #[case::go_away(go_away(1), Frame::GoAway)]
    #[case::reset(control(RST_STREAM, &[0, 0, 0, 3, 0, 0, 0, 5]), Frame::Reset { stream: 3 })]
    #[case::settings(control(4, &[0, 0, 0, 0]), Frame::Other)]
    fn control_frames(#[case] bytes: Vec<u8>, #[case] expected: Frame) {
        let mut decoder = Decoder::default();
        decoder.feed(&bytes);
        assert_eq!(decoder.next_frame(), Ok(Some(expected)));
    }

    #[rstest]
    #[case::version(vec![0x80, 2, 0, 6, 0, 0, 0, 0], Error::Version(2))]
    #[case::short(control(PING, &[1]), Error::Short(PING))]
    #[case::short_open(control(SYN_STREAM, &[0; 8]), Error::Short(SYN_STREAM))]
    #[case::headers(mk_open(1, &[0x78, 0xbb, 0, 0, 0, 0, 0xff, 0xff]), Error::Headers)]
    #[case::cut_headers(mk_open(1, &mk_block(&[], true)[..8]), Error::Headers)]
    fn broken_frames_are_refused(#[case] bytes: Vec<u8>, #[case] expected: Error) {
        let mut decoder = Decoder::default();
        decoder.feed(&bytes);
        assert_eq!(decoder.next_frame(), Err(expected));
    }
}
