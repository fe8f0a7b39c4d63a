//! The program that a container runs.

use std::collections::BTreeMap;

use cluster_spec::images::Image;
use podresources::cri::v1 as cri;

use crate::helper::Program;
use crate::identity::Identity;
use crate::runtime::Error;

/// Default `PATH` of containers: the image's own directories first.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/bin:/sbin:/usr/sbin:/usr/bin";

/// Returns the program of a container: the pod's command, or else the image's, with the environment that other runtimes set.
pub(super) fn program(
    config: &cri::ContainerConfig,
    image: &Image,
    identity: &Identity,
    hostname: &str,
) -> Result<Program, Error> {
    let command = if config.command.is_empty() {
        &image.entrypoint
    } else {
        &config.command
    };
    let argv: Vec<String> = command.iter().chain(&config.args).cloned().collect();
    if argv.is_empty() {
        return Err(Error::Invalid("no command specified"));
    }
    let mut env: BTreeMap<&str, &str> = [
        ("PATH", DEFAULT_PATH),
        ("HOSTNAME", hostname),
        ("HOME", identity.home()),
    ]
    .into();
    env.extend(
        config
            .envs
            .iter()
            .map(|variable| (variable.key.as_str(), variable.value.as_str())),
    );
    let directory = if config.working_dir.is_empty() {
        "/"
    } else {
        &config.working_dir
    };
    Ok(Program {
        argv,
        env: env
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        directory: directory.into(),
        uid: identity.uid,
        gid: identity.gid,
        groups: identity.groups.clone(),
        no_new_privileges: config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref())
            .is_some_and(|security| security.no_new_privs),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn mk_words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn mk_program(config: &cri::ContainerConfig) -> Program {
        let image = Image {
            entrypoint: mk_words(&["/pause"]),
            ..Default::default()
        };
        program(config, &image, &Identity::default(), "web").unwrap()
    }

    #[rstest]
    #[case::image_alone(&[], &[], &["/pause"])]
    #[case::arguments_for_the_image(&[], &["-v"], &["/pause", "-v"])]
    #[case::command(&["/bin/sleep"], &["5"], &["/bin/sleep", "5"])]
    fn command_of_the_pod_replaces_that_of_the_image(
        #[case] command: &[&str],
        #[case] args: &[&str],
        #[case] expected: &[&str],
    ) {
        let config = cri::ContainerConfig {
            command: mk_words(command),
            args: mk_words(args),
            ..Default::default()
        };
        assert_eq!(mk_program(&config).argv, mk_words(expected));
    }

    #[test]
    fn nothing_to_run_is_refused() {
        let outcome = program(
            &cri::ContainerConfig::default(),
            &Image::default(),
            &Identity::default(),
            "",
        );
        assert!(matches!(
            outcome,
            Err(Error::Invalid("no command specified"))
        ));
    }

    #[test]
    fn environment_of_the_pod_wins_over_defaults() {
        let config = cri::ContainerConfig {
            envs: vec![
                cri::KeyValue {
                    key: "PATH".to_owned(),
                    value: "/x".to_owned(),
                },
                cri::KeyValue {
                    key: "A".to_owned(),
                    value: "1".to_owned(),
                },
            ],
            ..Default::default()
        };
        let env = mk_program(&config).env;
        let value = |name: &str| {
            env.iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.as_str())
        };
        assert_eq!(value("PATH"), Some("/x"));
        assert_eq!(value("A"), Some("1"));
        assert_eq!(value("HOSTNAME"), Some("web"));
        assert_eq!(value("HOME"), Some("/root"));
    }
}
