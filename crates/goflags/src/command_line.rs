//! Splits a command line by the rules of Go's `flag` package: one or two dashes, `-name value` or `-name=value`. A switch takes a value only
//! after `=`. The flags end at `--`, or at the first word that is not a flag.

/// A flag that a program knows.
pub trait Flag {
    /// Returns the name, without dashes.
    fn name(&self) -> &str;

    /// Returns whether the flag has a value, after `=` or as the next word. Otherwise it is a switch.
    fn takes_value(&self) -> bool;
}

/// The words cannot be split into flags; the messages are those of Go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `-h` or `--help`, unless the program knows such a flag.
    #[error("help requested")]
    Help,
    /// The program does not know the flag.
    #[error("flag provided but not defined: -{0}")]
    Undefined(String),
    /// The last word is a flag that needs a value.
    #[error("flag needs an argument: -{0}")]
    NoValue(String),
    /// `---x`, `-=x` and the like.
    #[error("bad flag syntax: {0}")]
    Syntax(String),
}

/// A command line without the program's name. Iterates over its flags in the given order, each with its value; a switch without a value has
/// `true`.
#[derive(Debug)]
pub struct CommandLine<'a, F, W> {
    known: &'a [F],
    words: W,
    /// The word that ended the flags, unless it was `--`.
    first_other_word: Option<String>,
    ended: bool,
}

impl<'a, F: Flag, W: Iterator<Item = String>> CommandLine<'a, F, W> {
    /// Creates the command line of a program that knows these flags.
    pub fn new(known: &'a [F], words: impl IntoIterator<Item = String, IntoIter = W>) -> Self {
        Self {
            known,
            words: words.into_iter(),
            first_other_word: None,
            ended: false,
        }
    }

    /// Returns the words that are not read yet. After the last flag these are the words behind the flags.
    pub fn rest(self) -> Vec<String> {
        self.first_other_word
            .into_iter()
            .chain(self.words)
            .collect()
    }

    fn read(&mut self) -> Result<Option<(&'a F, String)>, Error> {
        let Some(word) = self.words.next() else {
            return Ok(None);
        };
        let Some(body) = word.strip_prefix('-').filter(|body| !body.is_empty()) else {
            self.first_other_word = Some(word);
            return Ok(None);
        };
        let body = match body.strip_prefix('-') {
            Some("") => return Ok(None),
            Some(body) => body,
            None => body,
        };
        if body.starts_with(['-', '=']) {
            return Err(Error::Syntax(word));
        }
        let (name, given) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        let Some(flag) = self.known.iter().find(|flag| flag.name() == name) else {
            return Err(match name {
                "h" | "help" => Error::Help,
                _ => Error::Undefined(name.to_owned()),
            });
        };
        let value = match given {
            Some(value) => value,
            None if flag.takes_value() => self
                .words
                .next()
                .ok_or_else(|| Error::NoValue(name.to_owned()))?,
            None => "true".to_owned(),
        };
        Ok(Some((flag, value)))
    }
}

impl<'a, F: Flag, W: Iterator<Item = String>> Iterator for CommandLine<'a, F, W> {
    type Item = Result<(&'a F, String), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let read = self.read();
        self.ended = !matches!(read, Ok(Some(_)));
        read.transpose()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Name, and whether the flag takes a value.
    struct Known(&'static str, bool);

    impl Flag for Known {
        fn name(&self) -> &str {
            self.0
        }

        fn takes_value(&self) -> bool {
            self.1
        }
    }

    const KNOWN: &[Known] = &[Known("debug", false), Known("sysfs", true)];

    fn line(text: &str) -> CommandLine<'static, Known, impl Iterator<Item = String>> {
        CommandLine::new(KNOWN, text.split_whitespace().map(str::to_owned))
    }

    #[rstest]
    #[case::one_dash("-sysfs /x", &[("sysfs", "/x")], &[])]
    #[case::two_dashes("--sysfs=/x=y", &[("sysfs", "/x=y")], &[])]
    #[case::empty_value("--sysfs=", &[("sysfs", "")], &[])]
    #[case::value_like_a_flag("--sysfs --debug", &[("sysfs", "--debug")], &[])]
    #[case::switch_alone("-debug --sysfs x", &[("debug", "true"), ("sysfs", "x")], &[])]
    #[case::switch_with_value("--debug=false", &[("debug", "false")], &[])]
    #[case::switch_does_not_take_the_next_word("--debug false", &[("debug", "true")], &["false"])]
    #[case::flags_end_at_the_first_word("--debug /etc --sysfs x", &[("debug", "true")], &["/etc", "--sysfs", "x"])]
    #[case::terminator("-- --debug", &[], &["--debug"])]
    #[case::lone_dash("- -debug", &[], &["-", "-debug"])]
    fn words_split_as_in_go(
        #[case] text: &str,
        #[case] flags: &[(&str, &str)],
        #[case] rest: &[&str],
    ) {
        let mut line = line(text);
        let found: Vec<(&str, String)> = line
            .by_ref()
            .map(|flag| flag.map(|(flag, value)| (flag.name(), value)).unwrap())
            .collect();
        let expected: Vec<(&str, String)> = flags
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(line.rest(), rest);
    }

    #[rstest]
    #[case::unknown("--nope=1", "flag provided but not defined: -nope")]
    #[case::no_value("--debug --sysfs", "flag needs an argument: -sysfs")]
    #[case::three_dashes("---debug", "bad flag syntax: ---debug")]
    #[case::no_name("--=x", "bad flag syntax: --=x")]
    #[case::help("-h", "help requested")]
    fn other_words_are_refused(#[case] text: &str, #[case] expected: &str) {
        let mut line = line(text);
        let error = line.find_map(Result::err).unwrap();
        assert_eq!(error.to_string(), expected);
        assert!(line.next().is_none(), "nothing is read after an error");
    }
}
