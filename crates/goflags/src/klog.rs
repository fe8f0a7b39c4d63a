//! The flags of klog, Kubernetes' logging library, which every program of the original stack has (operator.md 2, rte.md 2.2). All products
//! take them, so that command lines of the original work. `-v` is not among them: it has an effect in each product.

use crate::command_line::Flag;

/// Type of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On or off.
    Switch,
    /// A whole number.
    Number,
    /// Anything else.
    Text,
}

/// A flag of klog: its name, its type and its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Klog {
    /// Name without dashes.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Value when the flag is not given.
    pub default: &'static str,
}

const fn klog(name: &'static str, kind: Kind, default: &'static str) -> Klog {
    Klog {
        name,
        kind,
        default,
    }
}

/// The flags.
pub const FLAGS: [Klog; 12] = [
    klog("vmodule", Kind::Text, ""),
    klog("logtostderr", Kind::Switch, "true"),
    klog("alsologtostderr", Kind::Switch, "false"),
    klog("log_dir", Kind::Text, ""),
    klog("log_file", Kind::Text, ""),
    klog("log_file_max_size", Kind::Number, "1800"),
    klog("add_dir_header", Kind::Switch, "false"),
    klog("skip_headers", Kind::Switch, "false"),
    klog("one_output", Kind::Switch, "false"),
    klog("skip_log_headers", Kind::Switch, "false"),
    klog("stderrthreshold", Kind::Text, "2"),
    klog("log_backtrace_at", Kind::Text, ""),
];

impl Klog {
    /// Returns whether a value asks for something else than the default.
    pub fn asks_for_a_change(&self, value: &str) -> bool {
        match self.kind {
            Kind::Switch => crate::boolean(value) != crate::boolean(self.default),
            Kind::Number | Kind::Text => value != self.default,
        }
    }

    /// Returns the warning for a value of this flag, which changes nothing; `None` if the value is the default, which is what happens anyway.
    pub fn warning(&self, value: &str) -> Option<String> {
        let instead = match self.name {
            "vmodule" => "one verbosity holds for all files",
            "log_backtrace_at" => "no backtraces are logged",
            _ => "every line goes to stderr, with its header",
        };
        self.asks_for_a_change(value)
            .then(|| format!("flag -{} has no effect: {instead}", self.name))
    }
}

/// Returns the flag of that name.
pub fn find(name: &str) -> Option<Klog> {
    FLAGS.into_iter().find(|flag| flag.name == name)
}

impl Flag for Klog {
    fn name(&self) -> &str {
        self.name
    }

    fn takes_value(&self) -> bool {
        self.kind != Kind::Switch
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::default_by_another_word("logtostderr", "T", false)]
    #[case::files("logtostderr", "false", true)]
    #[case::number("log_file_max_size", "1800", false)]
    #[case::pattern("vmodule", "cache=6", true)]
    fn a_value_is_warned_of_if_it_asks_for_something_else(
        #[case] name: &str,
        #[case] value: &str,
        #[case] warned: bool,
    ) {
        let warning = find(name).unwrap().warning(value);
        assert_eq!(warning.is_some(), warned);
        assert!(warning.is_none_or(|text| text.contains(name)));
    }
}
