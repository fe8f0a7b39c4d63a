//! The images of the stack, and the arguments that its programs need because they run without a root directory of their own.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use cluster_spec::images::{Image, Images};

use super::rewrite::Paths;

/// Where the exporter looks for its configuration; the next constant is the same for certificates.
const RTE_CONFIG: &str = "/etc/resource-topology-exporter";
const RTE_CERTIFICATES: &str = "/etc/secrets/rte";
/// Directory of the exporter's configuration below the user's home. The exporter reads it only from a list of allowed places.
const RTE_HOME: &str = ".rte";

/// Returns the images of an embedded node, made of the programs in a directory.
pub(crate) fn images(bin_dir: &Path) -> Images {
    let image = Image::of_stack(bin_dir);
    // Users of images have no meaning here.
    let repositories = [
        api::names::STACK_REPOSITORY,
        api::names::EXPORTER_REPOSITORY,
    ];
    let images = repositories.map(|repository| (repository.to_owned(), image.clone()));
    Images::new(BTreeMap::from(images))
}

/// The values that the arguments of a container's programs are adapted to.
pub(crate) struct Place<'a> {
    /// The pod's address.
    pub(crate) address: Ipv4Addr,
    /// Paths of the container.
    pub(crate) paths: &'a Paths,
    /// Home directory of the container's user.
    pub(crate) home: &'a Path,
    /// Kubeconfig of the pod's account, if it has one.
    pub(crate) kubeconfig: Option<&'a PathBuf>,
    /// The node's sysfs.
    pub(crate) sysfs: &'a Path,
    /// The node's device plugin directory.
    pub(crate) device_plugins: &'a Path,
}

/// Returns the arguments of a program, extended so that it listens on the pod's address and looks into the pod's directories. Given flags
/// stay, except those that listen on every address.
pub(crate) fn adapt(argv: Vec<String>, place: &Place<'_>) -> Vec<String> {
    let name = argv
        .first()
        .and_then(|program| Path::new(program).file_name())
        .and_then(|name| name.to_str())
        .unwrap_or_default()
        .to_owned();
    let mut flags = Flags { argv };
    let address = place.address;
    let is_client = matches!(
        name.as_str(),
        "resource-topology-exporter" | "kube-scheduler" | "numaresources-scheduler"
    );
    if let Some(kubeconfig) = place.kubeconfig.filter(|_| is_client) {
        flags.add_unless_given("kubeconfig", &kubeconfig.to_string_lossy());
    }
    match name.as_str() {
        "numaresources-operator" if !flags.is_given("handle-lifecycle-event") => {
            flags.listen("metrics-bind-address", ":8080", address);
            flags.listen("health-probe-bind-address", ":8081", address);
        }
        "resource-topology-exporter" => {
            flags.replace_or_add("metrics-ip", &address.to_string());
            flags.add_unless_given("sysfs", &place.sysfs.to_string_lossy());
            if place.paths.find(RTE_CONFIG).is_some() {
                let config = place.home.join(RTE_HOME).join("config.yaml");
                flags.add_unless_given("config", &config.to_string_lossy());
            }
            if let Some(certificates) = place.paths.find(RTE_CERTIFICATES) {
                flags.add_unless_given("metrics-certs-dir", &certificates.to_string_lossy());
            }
        }
        "kube-scheduler" | "numaresources-scheduler" => {
            flags.replace_or_add("bind-address", &address.to_string());
        }
        "numacell" => {
            flags.add_unless_given("sysfs", &place.sysfs.to_string_lossy());
            flags.add_unless_given("plugin-dir", &place.device_plugins.to_string_lossy());
        }
        "deviceplugin" => {
            flags.add_unless_given("plugin-dir", &place.device_plugins.to_string_lossy());
        }
        _ => {}
    }
    flags.argv
}

/// Returns the links that a program expects in its home, for files that it reads only from known places.
pub(crate) fn links(paths: &Paths) -> Vec<(&'static str, PathBuf)> {
    let config = paths.find(RTE_CONFIG).map(|path| (RTE_HOME, path));
    config.into_iter().collect()
}

/// A command line in the syntax of Go's flags. Added flags come first, because the last occurrence of a flag wins and the first other word
/// ends the flags.
struct Flags {
    argv: Vec<String>,
}

impl Flags {
    /// Returns the position of a flag, and whether its value is in the same word.
    fn find(&self, flag: &str) -> Option<(usize, bool)> {
        self.argv.iter().enumerate().skip(1).find_map(|(at, word)| {
            let body = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
            match body.split_once('=') {
                Some((name, _)) if name == flag => Some((at, true)),
                None if body == flag => Some((at, false)),
                _ => None,
            }
        })
    }

    fn is_given(&self, flag: &str) -> bool {
        self.find(flag).is_some()
    }

    fn value(&self, flag: &str) -> Option<String> {
        match self.find(flag)? {
            (at, true) => self.argv[at]
                .split_once('=')
                .map(|(_, value)| value.to_owned()),
            (at, false) => self.argv.get(at + 1).cloned(),
        }
    }

    fn add_unless_given(&mut self, flag: &str, value: &str) {
        if !self.is_given(flag) {
            let at = self.argv.len().min(1);
            self.argv.insert(at, format!("--{flag}={value}"));
        }
    }

    fn replace_or_add(&mut self, flag: &str, value: &str) {
        match self.find(flag) {
            Some((at, true)) => self.argv[at] = format!("--{flag}={value}"),
            Some((at, false)) if at + 1 < self.argv.len() => {
                value.clone_into(&mut self.argv[at + 1]);
            }
            _ => self.add_unless_given(flag, value),
        }
    }

    /// Sets the given address on a listener that has none.
    fn listen(&mut self, flag: &str, default: &str, address: Ipv4Addr) {
        let given = self.value(flag);
        let given = given.as_deref().unwrap_or(default);
        let port = given
            .strip_prefix(':')
            .or_else(|| given.strip_prefix("0.0.0.0:"));
        if let Some(port) = port {
            self.replace_or_add(flag, &format!("{address}:{port}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::operator(
        "/bin/numaresources-operator -v=4",
        "/bin/numaresources-operator --health-probe-bind-address=127.9.1.2:8081 --metrics-bind-address=127.9.1.2:8080 -v=4"
    )]
    #[case::given_ports(
        "/bin/numaresources-operator --metrics-bind-address=:9 -health-probe-bind-address 1.2.3.4:5",
        "/bin/numaresources-operator --metrics-bind-address=127.9.1.2:9 -health-probe-bind-address 1.2.3.4:5"
    )]
    #[case::switched_off(
        "/bin/numaresources-operator --metrics-bind-address=0 --health-probe-bind-address=0",
        "/bin/numaresources-operator --metrics-bind-address=0 --health-probe-bind-address=0"
    )]
    #[case::hook(
        "/bin/numaresources-operator -handle-lifecycle-event preStop",
        "/bin/numaresources-operator -handle-lifecycle-event preStop"
    )]
    #[case::exporter(
        "/bin/resource-topology-exporter --sysfs=/n/sys",
        "/bin/resource-topology-exporter --config=/h/.rte/config.yaml --metrics-ip=127.9.1.2 --kubeconfig=/h/k --sysfs=/n/sys"
    )]
    #[case::scheduler(
        "/bin/kube-scheduler --config=/c",
        "/bin/kube-scheduler --bind-address=127.9.1.2 --kubeconfig=/h/k --config=/c"
    )]
    #[case::other("/bin/sleep 5", "/bin/sleep 5")]
    fn programs_listen_on_the_pods_address_and_find_their_files(
        #[case] given: &str,
        #[case] expected: &str,
    ) {
        let mut paths = Paths::default();
        paths.add(RTE_CONFIG, "/volumes/config");
        let place = Place {
            address: Ipv4Addr::new(127, 9, 1, 2),
            paths: &paths,
            home: Path::new("/h"),
            kubeconfig: Some(&PathBuf::from("/h/k")),
            sysfs: Path::new("/n/sys"),
            device_plugins: Path::new("/n/dp"),
        };
        let argv = given.split(' ').map(str::to_owned).collect();
        assert_eq!(adapt(argv, &place).join(" "), expected);
    }
}
