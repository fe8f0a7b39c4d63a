//! The state files of the managers.

use std::collections::BTreeMap;
use std::io;

use kubelet_model::checkpoint;
use kubelet_model::device::DeviceEntry;
use kubelet_model::node::StateFiles;

use super::{Error, Managers, Model};

/// State files of the managers, relative to the kubelet's directory.
const CPU_STATE: &str = "cpu_manager_state";
const MEMORY_STATE: &str = "memory_manager_state";
const DEVICE_STATE: &str = "device-plugins/kubelet_internal_checkpoint";

impl Managers {
    /// Returns which state files exist. A file whose content is not what was written last counts as corrupted.
    pub(super) fn kept_state(&self, model: &Model) -> Result<StateFiles, Error> {
        let found = |name: &'static str| -> Result<bool, Error> {
            let path = self.layout.kubelet(name);
            if !path.exists() {
                return Ok(false);
            }
            let text = fs_err::read_to_string(path)?;
            if model.written.get(name) != Some(&text) {
                return Err(Error::Corrupted(name));
            }
            Ok(true)
        };
        Ok(StateFiles {
            cpu: found(CPU_STATE)?,
            memory: found(MEMORY_STATE)?,
        })
    }

    /// Writes the state files that changed.
    pub(super) fn write(&self, model: &mut Model) {
        let files = [
            (
                CPU_STATE,
                checkpoint::cpu_manager_state(&model.node.cpu_state()),
            ),
            (
                MEMORY_STATE,
                checkpoint::memory_manager_state(&model.node.memory_state()),
            ),
            (DEVICE_STATE, device_state(model)),
        ];
        for (name, text) in files {
            let text = match text {
                Ok(text) => text,
                Err(error) => {
                    tracing::warn!(%error, "State of a manager was not written");
                    continue;
                }
            };
            if model.written.get(name) == Some(&text) {
                continue;
            }
            let path = self.layout.kubelet(name);
            let draft = path.with_extension("draft");
            let written = fs_err::write(&draft, &text).and_then(|()| fs_err::rename(&draft, &path));
            match written {
                Ok(()) => {
                    model.written.insert(name, text);
                }
                Err(error) => tracing::warn!(%error, "State of a manager was not written"),
            }
        }
    }

    /// Removes the state files that a kubelet does not accept after a change of its settings.
    pub(crate) fn remove_state(&self) -> io::Result<()> {
        let mut model = self.lock();
        for name in [CPU_STATE, MEMORY_STATE] {
            model.written.remove(name);
            let path = self.layout.kubelet(name);
            if path.exists() {
                fs_err::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Returns the checkpoint of the device manager.
fn device_state(model: &mut Model) -> Result<String, checkpoint::Error> {
    let devices = model.node.devices().plugins().iter();
    let registered: BTreeMap<String, Vec<String>> = devices
        .map(|(resource, devices)| (resource.clone(), devices.keys().cloned().collect()))
        .collect();
    let entries = model.node.device_entries();
    let answer = |entry: &DeviceEntry| {
        let key = (
            entry.pod.clone(),
            entry.container.clone(),
            entry.resource.clone(),
        );
        let answer = model.answers.get(&key);
        answer
            .map(prost::Message::encode_to_vec)
            .unwrap_or_default()
    };
    checkpoint::device_checkpoint(entries, answer, &registered)
}
