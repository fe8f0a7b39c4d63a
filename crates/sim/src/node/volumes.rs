//! Volumes of pods as directories: config maps, secrets, tokens, downward API files, and directories of the node.
//!
//! The files of objects are replaced all at once through the link `..data`, as by a kubelet.

mod payload;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use fs_err::os::unix::fs::symlink;
use k8s_openapi::api::core::v1::{HostPathVolumeSource, Pod, Volume};
use k8s_openapi::jiff::Timestamp;

pub(crate) use payload::{Error, References, Tokens};
use payload::{File, payload};

use super::layout::Layout;

/// Link to the directory with the current files.
const DATA: &str = "..data";

/// The context in which volumes are made.
pub(crate) struct Context<'a> {
    pub(crate) client: &'a kube::Client,
    pub(crate) layout: &'a Layout,
    /// Replacements of host paths.
    pub(crate) overrides: &'a BTreeMap<PathBuf, PathBuf>,
}

/// Makes all volumes of a pod; returns the directories by volume name. Existing volumes are updated.
pub(crate) async fn mount(
    context: &Context<'_>,
    pod: &Pod,
    tokens: &mut Tokens,
) -> Result<BTreeMap<String, PathBuf>, Error> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let mut directories = BTreeMap::new();
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    for volume in volumes.into_iter().flatten() {
        let directory = match kind(volume) {
            Kind::HostPath(source) => {
                host_path(context, source).map_err(|source| Error::new(volume, &source))?
            }
            Kind::Empty(kind) => {
                let directory = place(context.layout, uid, kind, &volume.name);
                fs::create_dir_all(&directory).map_err(|error| Error::new(volume, &error))?;
                directory
            }
            Kind::Files(kind) => {
                let directory = place(context.layout, uid, kind, &volume.name);
                let files = payload(context, pod, volume, tokens).await?;
                write(&directory, &files).map_err(|error| Error::new(volume, &error))?;
                directory
            }
            Kind::Unknown => return Err(Error::unsupported(volume)),
        };
        directories.insert(volume.name.clone(), directory);
    }
    Ok(directories)
}

enum Kind<'a> {
    HostPath(&'a HostPathVolumeSource),
    Empty(&'static str),
    Files(&'static str),
    Unknown,
}

fn kind(volume: &Volume) -> Kind<'_> {
    if let Some(source) = &volume.host_path {
        Kind::HostPath(source)
    } else if volume.empty_dir.is_some() {
        Kind::Empty("empty-dir")
    } else if volume.config_map.is_some() {
        Kind::Files("configmap")
    } else if volume.secret.is_some() {
        Kind::Files("secret")
    } else if volume.projected.is_some() {
        Kind::Files("projected")
    } else if volume.downward_api.is_some() {
        Kind::Files("downward-api")
    } else {
        Kind::Unknown
    }
}

fn place(layout: &Layout, uid: &str, kind: &str, name: &str) -> PathBuf {
    layout
        .pod(uid)
        .join("volumes")
        .join(format!("kubernetes.io~{kind}"))
        .join(name)
}

/// Returns the host directory of a volume, which is created if its type requests that.
fn host_path(context: &Context<'_>, source: &HostPathVolumeSource) -> io::Result<PathBuf> {
    let named = Path::new(&source.path);
    let named = context.overrides.get(named).map_or(named, PathBuf::as_path);
    let path = context.layout.host(named);
    let refuse = |what: &str| {
        Err(io::Error::other(format!(
            "hostPath type check failed: {} is not a {what}",
            source.path
        )))
    };
    match source.type_.as_deref().unwrap_or_default() {
        "DirectoryOrCreate" => fs::create_dir_all(&path)?,
        "FileOrCreate" if !path.exists() => {
            fs::File::create(&path)?;
        }
        "Directory" if !path.is_dir() => return refuse("directory"),
        "File" if !path.is_file() => return refuse("file"),
        // A missing path becomes a directory, because a mount needs a target.
        "" if !path.exists() => fs::create_dir_all(&path)?,
        _ => {}
    }
    Ok(path)
}

/// Replaces all files of a directory at once; does nothing if they are unchanged.
fn write(directory: &Path, files: &BTreeMap<String, File>) -> io::Result<()> {
    let data = directory.join(DATA);
    if is_same(&data, files) {
        return Ok(());
    }
    let now = Timestamp::now().as_nanosecond();
    let fresh = directory.join(format!("..{now}"));
    fs::create_dir_all(&fresh)?;
    for (path, file) in files {
        let path = fresh.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, &file.content)?;
        fs::set_permissions(&path, std::fs::Permissions::from_mode(file.mode))?;
    }
    let old = fs::read_link(&data).ok();
    let link = directory.join("..data_tmp");
    symlink(fresh.file_name().unwrap_or_default(), &link)?;
    fs::rename(&link, &data)?;
    let top = |path: &str| path.split('/').next().unwrap_or_default().to_owned();
    for name in files.keys().map(|path| top(path)) {
        let link = directory.join(&name);
        if !link.is_symlink() {
            symlink(Path::new(DATA).join(&name), link)?;
        }
    }
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !files.keys().any(|path| top(path) == name) {
            fs::remove_file(directory.join(name))?;
        }
    }
    if let Some(old) = old {
        fs::remove_dir_all(directory.join(old))?;
    }
    Ok(())
}

fn is_same(data: &Path, files: &BTreeMap<String, File>) -> bool {
    if !data.is_dir() {
        return false;
    }
    let mut present = Vec::new();
    collect(data, data, &mut present);
    present.len() == files.len()
        && files.iter().all(|(path, file)| {
            std::fs::read(data.join(path)).is_ok_and(|content| content == file.content)
        })
}

fn collect(root: &Path, directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(root, &path, found);
        } else if let Ok(relative) = path.strip_prefix(root) {
            found.push(relative.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_files(list: &[(&str, &str)]) -> BTreeMap<String, File> {
        list.iter()
            .map(|(path, content)| {
                let file = File {
                    content: content.as_bytes().to_vec(),
                    mode: 0o644,
                };
                ((*path).to_owned(), file)
            })
            .collect()
    }

    fn read(path: impl AsRef<Path>) -> String {
        fs::read_to_string(path.as_ref()).unwrap()
    }

    #[test]
    fn files_are_replaced_all_at_once_and_old_ones_go() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("volume");
        write(&dir, &mk_files(&[("a", "1"), ("sub/b", "2")])).unwrap();
        assert_eq!(read(dir.join("a")), "1");
        assert_eq!(read(dir.join("sub/b")), "2");
        let before = fs::read_link(dir.join(DATA)).unwrap();
        write(&dir, &mk_files(&[("a", "3")])).unwrap();
        assert_eq!(read(dir.join("a")), "3");
        assert!(!dir.join("sub").exists());
        assert!(!dir.join(&before).exists());
        let names = fs::read_dir(&dir).unwrap().count();
        assert_eq!(names, 3, "the link, its directory and one file");
    }

    #[test]
    fn same_files_are_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let files = mk_files(&[("a", "1")]);
        write(place.path(), &files).unwrap();
        let before = fs::read_link(place.path().join(DATA)).unwrap();
        write(place.path(), &files).unwrap();
        assert_eq!(fs::read_link(place.path().join(DATA)).unwrap(), before);
    }
}
