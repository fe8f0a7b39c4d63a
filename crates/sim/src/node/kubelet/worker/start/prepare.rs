//! What a container needs before its process starts: directories, variables and a command line.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cluster_spec::images::Resolved;
use k8s_openapi::api::core::v1::Container;
use podresources::deviceplugin::v1beta1::ContainerAllocateResponse;
use serde_json::json;

use crate::node::environment::{self, Addresses, expand};
use crate::node::images::{self, Place};
use crate::node::kubelet::worker::Worker;
use crate::node::kubelet::worker::prepared::{PATH, Prepared};
use crate::node::rewrite::Paths;

/// Where a pod finds the credentials of its service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Default file of the termination message.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// Directories that are private to a container unless a volume is mounted there.
const PRIVATE: [&str; 5] = ["/run", "/var/run", "/var/lib", "/tmp", "/dev/shm"];

impl Worker {
    /// Prepares directories, environment and command line of a container.
    pub(super) async fn prepare(
        &mut self,
        index: usize,
        container: &Container,
        image: &Resolved,
    ) -> Result<Vec<String>, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let kubelet = Arc::clone(&self.kubelet);
        let node = kubelet.addresses.node();
        let address = self.address.unwrap_or(node);
        let addresses = Addresses { pod: address, node };
        let own = kubelet.layout.container(&self.uid, &container.name);
        let home = own.join("home");
        let directory = own.join("root");
        for path in [&home, &directory] {
            fs_err::create_dir_all(path).map_err(|error| text(&error))?;
        }
        kubelet
            .managers
            .pre_start(&self.uid, &container.name)
            .await?;
        let answers = kubelet.managers.answers(&self.uid, &container.name);
        let given = self.given_variables(&answers);
        let mut env =
            environment::variables(&kubelet.client, &self.pod, container, addresses, given)
                .await
                .map_err(|error| text(&error))?;
        let paths = self
            .paths(container, &own, &answers)
            .map_err(|error| text(&error))?;
        link_files(&home, &paths).map_err(|error| text(&error))?;
        let words = words(container, image, &env);
        for (_, value) in &mut env {
            *value = paths.rewrite(value);
        }
        let kubeconfig = write_kubeconfig(&kubelet.server.url, &home, &paths);
        let kubeconfig = kubeconfig.map_err(|error| text(&error))?;
        // These are paths of this machine, so they are added after the rewriting.
        if !env.iter().any(|(name, _)| name == "HOME") {
            env.push(path_variable("HOME", &home));
        }
        if let Some(kubeconfig) = &kubeconfig {
            env.push(path_variable("KUBECONFIG", kubeconfig));
        }
        let argv = images::adapt(
            rewritten(words, &paths),
            &Place {
                address,
                paths: &paths,
                home: &home,
                kubeconfig: kubeconfig.as_ref(),
                sysfs: &kubelet.layout.host("/sys"),
                device_plugins: &kubelet.layout.kubelet("device-plugins"),
            },
        );
        let working = container.working_dir.as_deref();
        let working = working.and_then(|path| paths.find(path));
        self.prepared[index] = Arc::new(Prepared {
            paths,
            env,
            directory: working.unwrap_or(directory),
            programs: image.image.programs.clone(),
            messages: own.join("termination-log"),
            log: self.logs().join(&container.name),
        });
        Ok(argv)
    }

    /// Returns the variables that a container has before its own: those of every container, and those that device plugins add.
    fn given_variables(&self, answers: &[ContainerAllocateResponse]) -> Vec<(String, String)> {
        let mut given = self.kubelet.server.environment();
        given.push(("PATH".to_owned(), PATH.to_owned()));
        let name = self.pod.metadata.name.clone().unwrap_or_default();
        given.push(("HOSTNAME".to_owned(), name));
        for answer in answers {
            given.extend(answer.envs.clone());
        }
        given
    }

    /// Returns the paths of a container and their places on this machine.
    fn paths(
        &self,
        container: &Container,
        own: &Path,
        answers: &[ContainerAllocateResponse],
    ) -> io::Result<Paths> {
        let layout = &self.kubelet.layout;
        let mut paths = Paths::default();
        for path in PRIVATE {
            let path_outside = own.join("root").join(path.trim_start_matches('/'));
            fs_err::create_dir_all(&path_outside)?;
            paths.add(path, path_outside);
        }
        paths.add("/sys", layout.host("/sys"));
        for path in ["/proc/cpuinfo", "/proc/meminfo"] {
            paths.add(path, layout.host(path));
        }
        let volumes = self.volumes.as_ref();
        for mount in container.volume_mounts.iter().flatten() {
            let Some(volume) = volumes.and_then(|volumes| volumes.get(&mount.name)) else {
                continue;
            };
            let outside = match mount.sub_path.as_deref() {
                Some(path) if !path.is_empty() => volume.join(path),
                _ => volume.clone(),
            };
            paths.add(&mount.mount_path, outside.clone());
            // `/run` is another name of `/var/run`.
            if let Some(rest) = mount.mount_path.strip_prefix("/var/run/") {
                paths.add(&format!("/run/{rest}"), outside);
            }
        }
        for mount in answers.iter().flat_map(|answer| &answer.mounts) {
            paths.add(&mount.container_path, layout.host(&mount.host_path));
        }
        let messages = container.termination_message_path.as_deref();
        paths.add(
            messages.unwrap_or(TERMINATION_LOG),
            own.join("termination-log"),
        );
        Ok(paths)
    }
}

/// Links the files that a program expects in its home directory.
fn link_files(home: &Path, paths: &Paths) -> io::Result<()> {
    for (link, target) in images::links(paths) {
        let link = home.join(link);
        if !link.is_symlink() {
            fs_err::os::unix::fs::symlink(target, link)?;
        }
    }
    Ok(())
}

/// Returns the command line of a container, with the values of its variables.
fn words(container: &Container, image: &Resolved, env: &[(String, String)]) -> Vec<String> {
    let mut words = container.command.clone().unwrap_or_default();
    if words.is_empty() {
        words.clone_from(&image.image.entrypoint);
    }
    words.extend(container.args.iter().flatten().cloned());
    words.iter().map(|word| expand(word, env)).collect()
}

/// Returns a command line with paths of this machine in all words but the program.
fn rewritten(words: Vec<String>, paths: &Paths) -> Vec<String> {
    let mut words = words.into_iter();
    let program = words.next();
    let words = words.map(|word| paths.rewrite(&word));
    program.into_iter().chain(words).collect()
}

fn path_variable(name: &str, path: &Path) -> (String, String) {
    (name.to_owned(), path.to_string_lossy().into_owned())
}

/// Writes the kubeconfig of the pod's service account; returns its path, or `None` if the pod has no such account.
fn write_kubeconfig(url: &str, home: &Path, paths: &Paths) -> io::Result<Option<PathBuf>> {
    let Some(account) = paths.find(ACCOUNT) else {
        return Ok(None);
    };
    let file = home.join("kubeconfig");
    fs_err::write(&file, kubeconfig(url, &account))?;
    Ok(Some(file))
}

/// Returns a kubeconfig for a pod's service account; clients read the token file again when it changes.
fn kubeconfig(url: &str, account: &Path) -> String {
    let file = |name: &str| account.join(name).to_string_lossy().into_owned();
    let namespace = std::fs::read_to_string(account.join("namespace")).unwrap_or_default();
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": {"server": url, "certificate-authority": file("ca.crt")}}],
        "users": [{"name": "account", "user": {"tokenFile": file("token")}}],
        "contexts": [{"name": "pod", "context": {"cluster": "cluster", "user": "account", "namespace": namespace}}],
        "current-context": "pod",
    })
    .to_string()
}
