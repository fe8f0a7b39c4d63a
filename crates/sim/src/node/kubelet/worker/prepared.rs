//! How programs start in a container: its paths, variables and programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::node::launcher::{Input, Launch};
use crate::node::rewrite::Paths;

/// Default search path of programs.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The prepared environment in which programs of a container start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prepared {
    pub(super) paths: Paths,
    pub(super) env: Vec<(String, String)>,
    pub(super) directory: PathBuf,
    /// Programs of the image, by their paths in the container.
    pub(super) programs: BTreeMap<PathBuf, PathBuf>,
    /// File of the termination message.
    pub(super) messages: PathBuf,
    /// Directory of the logs.
    pub(super) log: PathBuf,
}

/// A program does not exist; the text is that of a container runtime.
#[derive(Debug, thiserror::Error)]
#[error("OCI runtime create failed: unable to start container process: {0}")]
pub(crate) struct NoProgram(String);

impl Prepared {
    /// Returns how to start a command in the container.
    pub(crate) fn launch(&self, argv: &[String]) -> Result<Launch, NoProgram> {
        let name = argv
            .first()
            .ok_or_else(|| NoProgram("no command specified".to_owned()))?;
        Ok(Launch {
            program: self.program(name)?,
            argv: argv.to_vec(),
            env: self.env.clone(),
            directory: self.directory.clone(),
            input: Input::None,
        })
    }

    /// Returns how to start a command that comes from outside; paths in its words are paths of the container.
    pub(crate) fn command(&self, argv: &[String]) -> Result<Launch, NoProgram> {
        let mut words = argv.iter();
        let program = words.next().cloned();
        let words = words.map(|word| self.paths.rewrite(word));
        let argv: Vec<String> = program.into_iter().chain(words).collect();
        self.launch(&argv)
    }

    fn program(&self, name: &str) -> Result<PathBuf, NoProgram> {
        let known = |path: &Path| {
            let inside = path.to_string_lossy();
            let found = self.programs.get(path).cloned();
            found
                .or_else(|| self.paths.find(&inside))
                .or_else(|| Some(path.to_owned()))
                .filter(|program| program.is_file())
        };
        if name.contains('/') {
            let found = known(Path::new(name));
            return found.ok_or_else(|| {
                NoProgram(format!(
                    "exec: {name:?}: stat {name}: no such file or directory"
                ))
            });
        }
        PATH.split(':')
            .find_map(|directory| known(&Path::new(directory).join(name)))
            .ok_or_else(|| {
                NoProgram(format!(
                    "exec: {name:?}: executable file not found in $PATH"
                ))
            })
    }
}
