//! The table of README.tests.md that says what the embedded cluster acts on. The API server warns by the same lists.

use std::fmt::Write as _;

use serde::Deserialize;

use super::page::{self, Part};

/// The lists; relative to the root of the repository.
const LISTS: &str = "crates/apiserver/corpus/extent.yaml";
const BEGIN: &str = "<!-- begin: what the embedded cluster acts on, by `cargo xtask codegen` -->\n";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lists {
    acts: Vec<String>,
    inert: Vec<Inert>,
    ignored: Vec<Ignored>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Inert {
    resource: String,
    needs: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ignored {
    resource: String,
    field: Option<String>,
    value: Option<String>,
    why: String,
}

impl Ignored {
    fn what(&self) -> String {
        match (&self.field, &self.value) {
            (Some(field), Some(value)) => format!("`{}` with `{field}: {value}`", self.resource),
            (Some(field), None) => format!("`{}` with `{field}`", self.resource),
            (None, _) => format!("`{}`", self.resource),
        }
    }
}

fn table(lists: &Lists) -> String {
    let mut text = String::from(
        "\n| resource or feature | the embedded cluster | with `--strict` | why |\n|---|---|---|---|\n",
    );
    let mut row = |what: &str, does: &str, strict: &str, why: &str| {
        // writing to a `String` cannot fail
        let _ = writeln!(text, "| {what} | {does} | {strict} | {why} |");
    };
    let acts: Vec<String> = lists.acts.iter().map(|name| format!("`{name}`")).collect();
    row(&acts.join(", "), "acts", "acts", "");
    for inert in &lists.inert {
        let what = format!("`{}`", inert.resource);
        let why = format!("as in a real cluster; needs {}", inert.needs);
        row(&what, "stored", "stored", &why);
    }
    for ignored in &lists.ignored {
        row(
            &ignored.what(),
            "stored with a warning",
            "refused",
            &ignored.why,
        );
    }
    text.push('\n');
    text
}

/// Returns the table.
///
/// # Errors
/// Returns an error if the lists cannot be read.
pub(super) fn part() -> anyhow::Result<Part> {
    let lists: Lists = page::list(LISTS)?;
    Ok(Part {
        begin: BEGIN,
        text: table(&lists),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_what_is_ignored() {
        let lists: Lists = serde_yaml::from_str(
            "{acts: [pods], inert: [], ignored: [{resource: jobs.batch, field: spec.a, value: B, why: c}]}",
        )
        .unwrap();
        let table = table(&lists);
        for row in [
            "| `pods` | acts | acts |  |",
            "| `jobs.batch` with `spec.a: B` | stored with a warning | refused | c |",
        ] {
            assert!(table.contains(row), "{table}");
        }
    }
}
