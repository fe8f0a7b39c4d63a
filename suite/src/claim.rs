//! A cluster that is given to runs serves one run at a time, and no run starts on what another one left.
//!
//! A run holds the Lease `kube-system/numaresources-tests` and renews it. The Lease says where the run's ledger is from the moment on at which the
//! run changes something, and is deleted when nothing of that is left. So a Lease of a run that is dead, and a namespace with the label of
//! another run, are marks of something that has to be undone first.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, ResourceExt};
use reports::log;
use serde_json::json;
use tokio::task::JoinSet;

use crate::context::RUN_LABEL;
use crate::interrupt::Interrupt;
use crate::recorder::NoteSender;
use crate::step::StepError;

/// Namespace of the Lease. Its identity is that of the cluster.
const NAMESPACE: &str = "kube-system";
const NAME: &str = "numaresources-tests";
/// The Lease, for people.
pub const LEASE: &str = "Lease kube-system/numaresources-tests";
/// Annotation of the Lease: the ledger of its run, and the machine where it is.
const LEDGER: &str = "numaresources-tests/ledger";
const HOST: &str = "numaresources-tests/host";
/// Run of a stack that is kept between runs.
pub const KEPT: &str = "stack";
/// How long a run counts as alive after it last renewed its Lease.
const DURATION: Duration = Duration::from_secs(30);
const RENEW_AFTER: Duration = Duration::from_secs(10);
/// How often a write is tried again that met another one.
const ATTEMPTS: usize = 5;

/// The cluster belongs to this run.
pub struct Claim {
    client: Client,
    run: String,
    /// Renews the Lease; ends with this value.
    renewing: JoinSet<()>,
}

impl Claim {
    /// Takes the cluster for a run. Nothing is changed if another run uses it, or if one left something there. If the cluster is taken away later,
    /// the run is asked to stop.
    pub async fn take(
        client: &Client,
        run: &str,
        interrupt: &Interrupt,
        notes: NoteSender,
    ) -> Result<Self, StepError> {
        for _ in 0..ATTEMPTS {
            let marks = Marks::of_others(client, run).await?;
            if let Some(why) = marks.objection(Timestamp::now()) {
                return Err(StepError::fail(why));
            }
            if write(client, run, marks.version).await? {
                let mut renewing = JoinSet::new();
                renewing.spawn(renew(
                    client.clone(),
                    run.to_owned(),
                    interrupt.clone(),
                    notes,
                ));
                return Ok(Self {
                    client: client.clone(),
                    run: run.to_owned(),
                    renewing,
                });
            }
        }
        Err(StepError::fail(format!(
            "{LEASE} changes all the time: several runs want this cluster at once; nothing was changed. Start one after another"
        )))
    }

    /// Notes on the cluster where the run records its changes. Must be called before the first one.
    pub async fn begin(&self, ledger: &Path) -> Result<(), StepError> {
        let ledger = std::path::absolute(ledger).unwrap_or_else(|_| ledger.to_owned());
        let annotations = json!({LEDGER: ledger.display().to_string(), HOST: host()});
        let patch = json!({"metadata": {"annotations": annotations}});
        leases(&self.client)
            .patch(NAME, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    /// Gives the cluster back. If something is left of the run, the Lease stays as its mark.
    pub async fn end(mut self, is_something_left: bool) -> Result<(), StepError> {
        self.renewing.shutdown().await;
        if !is_something_left {
            return free(&self.client, &self.run).await;
        }
        // the run is over: nobody has to wait until it is
        let patch = json!({"spec": {"leaseDurationSeconds": 1}});
        leases(&self.client)
            .patch(NAME, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }
}

/// Deletes the Lease of a run, if it is there.
pub async fn free(client: &Client, run: &str) -> Result<(), StepError> {
    let leases = leases(client);
    for _ in 0..ATTEMPTS {
        let Some(lease) = leases.get_opt(NAME).await? else {
            return Ok(());
        };
        if Holder::of(&lease).is_none_or(|holder| holder.run != run) {
            return Ok(());
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                resource_version: lease.resource_version(),
                uid: lease.uid(),
            }),
            ..DeleteParams::default()
        };
        match leases.delete(NAME, &params).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            other => return Ok(other.map(drop)?),
        }
    }
    Err(StepError::fail(format!(
        "{LEASE} of run {run} cannot be deleted: it changes all the time"
    )))
}

/// Returns the identity of a cluster.
pub async fn identity(client: &Client) -> Result<String, StepError> {
    let namespace = Api::<Namespace>::all(client.clone()).get(NAMESPACE).await?;
    Ok(namespace.uid().unwrap_or_default())
}

/// Who holds the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Identity of the run.
    pub run: String,
    /// When the run renewed it last.
    renewed: Option<Timestamp>,
    duration: Duration,
    /// The run's ledger, if the run has begun to change something, and the machine where it is.
    ledger: Option<(String, String)>,
}

impl Holder {
    /// Returns who holds the Lease of a cluster.
    pub async fn on(client: &Client) -> Result<Option<Self>, StepError> {
        let lease = leases(client).get_opt(NAME).await?;
        Ok(lease.as_ref().and_then(Self::of))
    }

    fn of(lease: &Lease) -> Option<Self> {
        let spec = lease.spec.clone().unwrap_or_default();
        let run = spec.holder_identity.filter(|run| !run.is_empty())?;
        let annotation = |name: &str| lease.annotations().get(name).cloned();
        let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or_default());
        Some(Self {
            run,
            renewed: spec.renew_time.map(|time| time.0),
            duration: Duration::from_secs(seconds.unwrap_or_default()),
            ledger: annotation(LEDGER).map(|ledger| (ledger, annotation(HOST).unwrap_or_default())),
        })
    }

    /// Returns how long ago the run renewed the Lease, unless the run is dead: that was too long ago, or nobody writes its ledger any more.
    pub fn alive(&self, now: Timestamp) -> Option<Duration> {
        if let Some((ledger, on)) = &self.ledger
            && *on == host()
            && log::is_released(Path::new(ledger))
        {
            return None;
        }
        // a time in the future is that of another clock
        let age = Duration::try_from(now.duration_since(self.renewed?)).unwrap_or_default();
        (age <= self.duration).then_some(age)
    }

    /// Returns whether the run records its changes in this file of this machine.
    pub fn has_ledger(&self, path: &Path) -> bool {
        self.ledger.as_ref().is_some_and(|(ledger, on)| {
            *on == host()
                && std::fs::canonicalize(ledger).is_ok_and(|ledger| {
                    std::fs::canonicalize(path).is_ok_and(|path| path == ledger)
                })
        })
    }
}

/// What other runs have on a cluster.
#[derive(Debug, Default)]
struct Marks {
    holder: Option<Holder>,
    /// Version of the Lease, if it is there.
    version: Option<String>,
    /// Namespaces of other runs: the run, and the name.
    namespaces: Vec<(String, String)>,
}

impl Marks {
    async fn of_others(client: &Client, run: &str) -> Result<Self, StepError> {
        let lease = leases(client).get_opt(NAME).await?;
        let others = format!("{RUN_LABEL},{RUN_LABEL} notin ({KEPT},{run})");
        let namespaces = Api::<Namespace>::all(client.clone())
            .list_metadata(&ListParams::default().labels(&others))
            .await?;
        let namespaces = namespaces.items.iter().map(|namespace| {
            let run = namespace.labels().get(RUN_LABEL).cloned();
            (run.unwrap_or_default(), namespace.name_any())
        });
        let holder = lease.as_ref().and_then(Holder::of);
        Ok(Self {
            // that of the run itself is there if nobody answered when it was written
            holder: holder.filter(|holder| holder.run != run),
            version: lease.and_then(|lease| lease.resource_version()),
            namespaces: namespaces.collect(),
        })
    }

    /// Returns why no other run may use the cluster now, and what to do about it.
    fn objection(&self, now: Timestamp) -> Option<String> {
        if let Some(holder) = &self.holder
            && let Some(age) = holder.alive(now)
        {
            return Some(format!(
                "run {} uses this cluster: it renewed {LEASE} {} s ago; nothing was changed. Wait for its end. If it was killed, put the cluster back \
                 first: {}",
                holder.run,
                age.as_secs(),
                cleanup_command(holder),
            ));
        }
        let dead = self.holder.as_ref().filter(|dead| dead.ledger.is_some());
        let mut runs: Vec<&str> = dead.iter().map(|dead| dead.run.as_str()).collect();
        let mut marks: Vec<String> = dead.iter().map(|_| LEASE.to_owned()).collect();
        for (run, namespace) in &self.namespaces {
            if !runs.contains(&run.as_str()) {
                runs.push(run);
            }
            marks.push(format!("Namespace {namespace}"));
        }
        let commands: Vec<_> = runs
            .iter()
            .map(|run| match dead {
                Some(dead) if dead.run == *run => cleanup_command(dead),
                _ => format!("numaresources-tests cleanup --run {run}"),
            })
            .collect();
        if commands.is_empty() {
            return None;
        }
        Some(format!(
            "run {} ended without undoing what it changed on this cluster: {}; nothing was changed. Put the cluster back first: {}",
            runs.join(" and "),
            marks.join(", "),
            commands.join("; "),
        ))
    }
}

/// Returns the command that undoes what the holder of the Lease changed.
fn cleanup_command(holder: &Holder) -> String {
    match &holder.ledger {
        None => format!("numaresources-tests cleanup --run {}", holder.run),
        Some((ledger, on)) => {
            let mut command = cleanup_of(Path::new(ledger));
            if *on != host() {
                // writing to a String cannot fail
                let _ = write!(command, " (on the machine {on}, where that file is)");
            }
            command
        }
    }
}

/// Returns the command that undoes what the run with this ledger changed.
pub fn cleanup_of(ledger: &Path) -> String {
    let path = std::path::absolute(ledger).unwrap_or_else(|_| ledger.to_owned());
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let path = if path.chars().all(is_plain) {
        path
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    };
    format!("numaresources-tests cleanup --events {path}")
}

/// Writes the Lease with this run as its holder, in place of the version that was seen. Returns whether nobody else wrote it meanwhile.
async fn write(client: &Client, run: &str, seen: Option<String>) -> Result<bool, StepError> {
    let now = MicroTime(Timestamp::now());
    let is_new = seen.is_none();
    let lease = Lease {
        metadata: kube::api::ObjectMeta {
            name: Some(NAME.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            resource_version: seen,
            ..kube::api::ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(run.to_owned()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    };
    let (leases, params) = (leases(client), PostParams::default());
    let written = if is_new {
        leases.create(&params, &lease).await
    } else {
        leases.replace(NAME, &params, &lease).await
    };
    match written {
        Ok(_) => Ok(true),
        // created, replaced or deleted by somebody else
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Renews the Lease. Stops the run when the Lease is not the run's any more.
async fn renew(client: Client, run: String, interrupt: Interrupt, notes: NoteSender) {
    let leases = leases(&client);
    loop {
        tokio::time::sleep(RENEW_AFTER).await;
        // what fails now is tried again the next time; whoever looks meanwhile finds the run's marks
        let Ok(lease) = leases.get_opt(NAME).await else {
            continue;
        };
        let holder = lease.as_ref().and_then(Holder::of);
        if holder.is_none_or(|holder| holder.run != run) {
            notes.note(&format!(
                "{LEASE} was taken away from this run, which stops: somebody else works on the cluster"
            ));
            interrupt.request_stop();
            return;
        }
        let version = lease.and_then(|lease| lease.resource_version());
        let patch = json!({
            "metadata": {"resourceVersion": version},
            "spec": {"renewTime": MicroTime(Timestamp::now())},
        });
        let _ = leases
            .patch(NAME, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
    }
}

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// Returns the name of this machine, or nothing where it is not known.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests;
