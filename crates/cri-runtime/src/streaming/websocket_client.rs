//! A websocket client: the first byte of each message names its channel.

use std::io;

use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_tungstenite::tungstenite::{Bytes, Message, Utf8Bytes};

use super::session::{self, Attached, Channel, Client, Input, Output, RequestedStreams};

/// Capacity of the queues in both directions, in messages.
const QUEUE: usize = 16;
/// Channel of version 5 whose messages end the channel that they name.
const CLOSE: u8 = 255;

/// A version of the remote command protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The outcome is a Status; input ends only with the connection.
    V4,
    /// Input can end without the connection.
    V5,
}

impl Version {
    /// Returns the protocol's name in the negotiation.
    pub const fn protocol(self) -> &'static str {
        match self {
            Self::V4 => "v4.channel.k8s.io",
            Self::V5 => "v5.channel.k8s.io",
        }
    }

    /// Returns the first of a client's protocols that is supported here.
    pub fn choose<'a>(offered: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        offered.into_iter().find_map(|name| {
            let known = [Self::V5, Self::V4];
            known.into_iter().find(|version| version.protocol() == name)
        })
    }
}

fn number(channel: Channel) -> u8 {
    match channel {
        Channel::Stdin => 0,
        Channel::Stdout => 1,
        Channel::Stderr => 2,
        Channel::Error => 3,
        Channel::Resize => 4,
    }
}

fn input(version: Version, message: &[u8]) -> Option<Input> {
    let stdin = number(Channel::Stdin);
    match message {
        [channel, bytes @ ..] if *channel == stdin => Some(Input {
            bytes: bytes.to_vec(),
            last: false,
        }),
        [CLOSE, channel] if version == Version::V5 && *channel == stdin => Some(Input {
            bytes: Vec::new(),
            last: true,
        }),
        _ => None,
    }
}

fn message(channel: Channel, bytes: &[u8]) -> Message {
    let mut all = vec![number(channel)];
    all.extend_from_slice(bytes);
    Message::Binary(Bytes::from(all))
}

/// Returns the last message; without its code clients assume a failure.
pub(crate) fn end() -> Message {
    Message::Close(Some(CloseFrame {
        code: CloseCode::Normal,
        reason: Utf8Bytes::default(),
    }))
}

/// Serves the client at the other end of an upgraded connection.
pub async fn run<C>(
    connection: C,
    version: Version,
    requested: RequestedStreams,
    start: impl Future<Output = Result<Attached, String>>,
) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Send + Unpin,
{
    let socket = WebSocketStream::from_raw_socket(connection, Role::Server, None).await;
    let (mut sink, mut stream) = socket.split();
    let (input_sender, input_receiver) = mpsc::channel(QUEUE);
    let (output_sender, mut output_receiver) = mpsc::channel(QUEUE);
    let receiving = async {
        // Moved into this future, so that the session notices when it ends.
        let input_sender = input_sender;
        while let Some(Ok(message)) = stream.next().await {
            let Message::Binary(bytes) = message else {
                continue;
            };
            if let Some(input) = input(version, &bytes)
                && input_sender.send(input).await.is_err()
            {
                return;
            }
        }
    };
    let serving = async {
        let sending = async {
            // The client waits for a message on the first channel that it reads, as a sign that it is connected.
            let first = match requested {
                RequestedStreams { stdout: true, .. } => Channel::Stdout,
                RequestedStreams { stderr: true, .. } => Channel::Stderr,
                _ => Channel::Error,
            };
            sink.send(message(first, &[])).await?;
            while let Some(output) = output_receiver.recv().await {
                if let Output::Bytes(channel, bytes) = output {
                    sink.send(message(channel, &bytes)).await?;
                }
            }
            sink.send(end()).await
        };
        let ((), sent) = tokio::join!(
            session::serve(
                Client {
                    input: input_receiver,
                    output: output_sender
                },
                requested,
                start
            ),
            sending
        );
        sent
    };
    tokio::pin!(receiving, serving);
    let sent = tokio::select! {
        sent = &mut serving => sent,
        () = &mut receiving => serving.await,
    };
    sent.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::newest("v5.channel.k8s.io,v4.channel.k8s.io", Some(Version::V5))]
    #[case::order_of_the_client("v4.channel.k8s.io,v5.channel.k8s.io", Some(Version::V4))]
    #[case::older("v3.channel.k8s.io,channel.k8s.io", None)]
    fn first_known_protocol_is_chosen(#[case] offered: &str, #[case] expected: Option<Version>) {
        assert_eq!(Version::choose(offered.split(',')), expected);
    }

    #[rstest]
    #[case::bytes(Version::V4, &[0, b'a'], Some((b"a".as_slice(), false)))]
    #[case::end(Version::V5, &[255, 0], Some((b"".as_slice(), true)))]
    #[case::no_end_in_version_4(Version::V4, &[255, 0], None)]
    #[case::end_of_another(Version::V5, &[255, 4], None)]
    #[case::size(Version::V5, &[4, b'{', b'}'], None)]
    #[case::nothing(Version::V5, &[], None)]
    fn input_is_on_its_channel(
        #[case] version: Version,
        #[case] message: &[u8],
        #[case] expected: Option<(&[u8], bool)>,
    ) {
        let input = input(version, message);
        let found = input
            .as_ref()
            .map(|input| (input.bytes.as_slice(), input.last));
        assert_eq!(found, expected);
    }
}
