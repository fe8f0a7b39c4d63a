//! A command line to edit and to render: an ordered set of flags. Edits keep the position of a flag, new flags are appended
//! (operator.md 6.2).

/// Flags in order of first appearance. Each is a switch or has a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags(Vec<(String, Option<String>)>);

impl Flags {
    /// Parses `name` and `name=value` items, split at the first `=`; `--v` becomes `-v`.
    pub fn parse<I: IntoIterator<Item = S>, S: AsRef<str>>(items: I) -> Self {
        let mut flags = Self::default();
        for item in items {
            match item.as_ref().split_once('=') {
                Some((name, value)) => flags.set(name, value),
                None => flags.switch_on(item.as_ref()),
            }
        }
        flags
    }

    /// Sets a flag with a value.
    pub fn set(&mut self, name: &str, value: &str) {
        self.put(name, Some(value.into()));
    }

    /// Sets a flag without a value.
    pub fn switch_on(&mut self, name: &str) {
        self.put(name, None);
    }

    /// Removes a flag.
    pub fn remove(&mut self, name: &str) {
        let name = canonical(name);
        self.0.retain(|(known, _)| known != name);
    }

    /// Returns the value of a flag; `None` for switches and absent flags.
    pub fn value(&self, name: &str) -> Option<&str> {
        let name = canonical(name);
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .and_then(|(_, value)| value.as_deref())
    }

    /// Returns the arguments of the command line.
    pub fn to_args(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|(name, value)| match value {
                Some(value) => format!("{name}={value}"),
                None => name.clone(),
            })
            .collect()
    }

    fn put(&mut self, name: &str, value: Option<String>) {
        let name = canonical(name);
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some(entry) => entry.1 = value,
            None => self.0.push((name.into(), value)),
        }
    }
}

fn canonical(name: &str) -> &str {
    if name == "--v" { "-v" } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_keep_the_place_and_new_flags_go_to_the_end() {
        let mut flags = Flags::parse(["--a=1", "--v=2", "--b=false"]);
        flags.set("-v", "4");
        flags.switch_on("--b");
        flags.set("--c", "x=y");
        flags.remove("--a");
        assert_eq!(flags.to_args(), ["-v=4", "--b", "--c=x=y"]);
        assert_eq!(flags.value("--c"), Some("x=y"));
        assert_eq!(flags.value("--b"), None);
    }
}
