//! The container images.

use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "real: podman"]
fn images_of_a_development_build_do_in_podman_what_each_is_for() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let ended = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["image", "--development", "--test"])
        .current_dir(root)
        .status()
        .unwrap();
    assert!(ended.success(), "{ended}");
}
