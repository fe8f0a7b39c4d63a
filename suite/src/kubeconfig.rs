//! How a cluster that is given to a run is reached: by kubeconfig files, or from a pod of the cluster.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig as Content};
use kube::{Client, Config};
use tokio::process::Command;

use crate::context::chain;
use crate::step::StepError;

/// Variable with the kubeconfig files, as kubectl has it.
const VARIABLE: &str = "KUBECONFIG";
/// Variable that is set in each pod, as a sign that this is one.
const POD_VARIABLE: &str = "KUBERNETES_SERVICE_HOST";

/// Where the address of a cluster and the credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kubeconfig {
    /// Files that are merged as kubectl does it: the first one that says something wins, and of several files those that do not exist are left out.
    Files(Vec<PathBuf>),
    /// The service account of the pod that this process runs in.
    Pod,
}

impl Kubeconfig {
    /// Returns the files of `KUBECONFIG`. An empty value is as good as none.
    pub fn from_environment() -> Option<Self> {
        Self::from_list(&std::env::var_os(VARIABLE)?)
    }

    fn from_list(list: &OsStr) -> Option<Self> {
        let files = std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty());
        let files: Vec<_> = files.collect();
        (!files.is_empty()).then_some(Self::Files(files))
    }

    /// Returns the service account of the pod that this process runs in, if it runs in one.
    pub fn of_pod() -> Option<Self> {
        let host = std::env::var_os(POD_VARIABLE)?;
        (!host.is_empty()).then_some(Self::Pod)
    }

    /// Returns what [`Kubeconfig::absolute_files`] has recorded.
    pub fn recorded(files: &[String]) -> Self {
        match files {
            [] => Self::Pod,
            files => Self::Files(files.iter().map(PathBuf::from).collect()),
        }
    }

    /// Returns the files, in a form that holds in any directory.
    pub fn absolute_files(&self) -> Vec<String> {
        let absolute =
            |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        self.files()
            .iter()
            .map(|path| absolute(path).display().to_string())
            .collect()
    }

    /// Returns the file, if it is a single one.
    pub fn single_file(&self) -> Option<&Path> {
        match self.files() {
            [file] => Some(file),
            _ => None,
        }
    }

    fn files(&self) -> &[PathBuf] {
        match self {
            Self::Files(files) => files,
            Self::Pod => &[],
        }
    }

    /// Has a program that obeys `KUBECONFIG` reach the same cluster.
    pub(crate) fn apply_to(&self, command: &mut Command) {
        match std::env::join_paths(self.absolute_files()) {
            Ok(files) if !files.is_empty() => command.env(VARIABLE, files),
            // a file whose path has a colon was given by an option: it is the only one
            Err(_) => command.env(
                VARIABLE,
                self.single_file().unwrap_or_else(|| Path::new("")),
            ),
            Ok(_) => command.env_remove(VARIABLE),
        };
    }

    /// Returns a client for the current context. A request fails when the API server takes longer than the limit to take it or to answer.
    pub async fn client(&self, limit: Duration) -> Result<Client, StepError> {
        let mut config = self.config().await?;
        config.connect_timeout = Some(limit);
        config.write_timeout = Some(limit);
        config.read_timeout = Some(limit);
        // the time before a request is none in which the server does not answer
        config.reset_reader_on_write = true;
        Client::try_from(config).map_err(|error| self.unusable(&error))
    }

    async fn config(&self) -> Result<Config, StepError> {
        match self {
            Self::Pod => Config::incluster().map_err(|error| self.unusable(&error)),
            Self::Files(_) => {
                let content = self.content()?;
                Config::from_custom_kubeconfig(content, &KubeConfigOptions::default())
                    .await
                    .map_err(|error| self.unusable(&error))
            }
        }
    }

    fn content(&self) -> Result<Content, StepError> {
        let there: Vec<_> = self.files().iter().filter(|path| path.exists()).collect();
        let files = match (there.as_slice(), self.files()) {
            // reading the first one says what is wrong
            ([], [first, ..]) => vec![first],
            _ => there,
        };
        files
            .into_iter()
            .try_fold(Content::default(), |merged, path| {
                merged.merge(Content::read_from(path)?)
            })
            .map_err(|error| self.unusable(&error))
    }

    fn unusable(&self, error: &dyn std::error::Error) -> StepError {
        StepError::fail(format!("the {self} cannot be used: {}", chain(error)))
    }
}

impl From<PathBuf> for Kubeconfig {
    fn from(file: PathBuf) -> Self {
        Self::Files(vec![file])
    }
}

impl fmt::Display for Kubeconfig {
    /// Writes what it is, to stand behind an article.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod => f.write_str("service account of this pod"),
            Self::Files(files) => {
                let names: Vec<_> = files
                    .iter()
                    .map(|file| file.display().to_string())
                    .collect();
                write!(f, "kubeconfig {}", names.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &Path, name: &str, server: &str, token: &str) -> PathBuf {
        let path = dir.join(name);
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {name}\n\
             contexts: [{{name: {name}, context: {{cluster: shared, user: {name}}}}}]\n\
             users: [{{name: {name}, user: {{token: {token}}}}}]\n\
             clusters: [{{name: shared, cluster: {{server: '{server}'}}}}]\n"
        );
        std::fs::write(&path, text).expect("file is written");
        path
    }

    #[test]
    fn an_empty_variable_names_no_file() {
        for list in ["", ":", "::"] {
            assert_eq!(Kubeconfig::from_list(OsStr::new(list)), None, "{list:?}");
        }
        assert_eq!(
            Kubeconfig::from_list(OsStr::new("/a::/b")),
            Some(Kubeconfig::Files(vec!["/a".into(), "/b".into()]))
        );
    }

    #[tokio::test]
    async fn the_first_file_wins_and_those_that_do_not_exist_are_left_out() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let first = file(dir.path(), "first", "http://127.0.0.1:1", "a");
        let second = file(dir.path(), "second", "http://127.0.0.1:2", "b");
        let none = dir.path().join("none");
        let merged = Kubeconfig::Files(vec![none, first, second]);
        let config = merged.config().await.expect("two files are there");
        assert_eq!(config.cluster_url.to_string(), "http://127.0.0.1:1/");
        let content = merged.content().expect("two files are there");
        assert_eq!(content.current_context.as_deref(), Some("first"));
        assert_eq!((content.contexts.len(), content.clusters.len()), (2, 1));
    }

    #[tokio::test]
    async fn files_of_which_none_can_be_used_are_named_with_the_reason() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let empty = dir.path().join("empty");
        std::fs::write(&empty, "apiVersion: v1\nkind: Config\n").expect("file is written");
        let none = dir.path().join("none");
        for (kubeconfig, reason) in [
            (
                Kubeconfig::from(empty),
                "failed to determine current context",
            ),
            (Kubeconfig::from(none.clone()), "No such file"),
            (Kubeconfig::Files(vec![none.clone(), none]), "No such file"),
        ] {
            let failure = kubeconfig
                .client(Duration::from_secs(1))
                .await
                .err()
                .expect("there is no context");
            let message = failure.into_failure("").message;
            let start = format!("the {kubeconfig} cannot be used: ");
            assert!(message.starts_with(&start), "{message}");
            assert!(message.contains(reason), "{message}");
        }
    }

    #[test]
    fn what_is_recorded_is_read_back() {
        let kubeconfig = Kubeconfig::Files(vec!["/a".into(), "/b".into()]);
        assert_eq!(
            Kubeconfig::recorded(&kubeconfig.absolute_files()),
            kubeconfig
        );
        let pod = Kubeconfig::Pod;
        assert_eq!(Kubeconfig::recorded(&pod.absolute_files()), pod);
    }
}
