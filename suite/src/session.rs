//! One run: a cluster, and the scenarios that run on it one after another.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use reports::event::{Event, Failure, SETUP, STACK, SkipClass, TEARDOWN, Verdict};
use reports::stream::Stream;
use testbed::lane;
use tokio::time::Instant;

use crate::claim::Claim;
use crate::collect;
use crate::context::{Cluster, Context, RUN_LABEL, topologies};
use crate::health::{self, Restarts, StaysUp};
use crate::interrupt::Interrupt;
use crate::must_gather::MustGather;
use crate::observed::{NodeTopology, difference};
use crate::recorder::{PollResult, Recorder, millis};
use crate::scenario::Scenario;
use crate::setup::{self, ClusterSource, Options, Partial};
use crate::step::StepError;

/// Why the set-up did not complete.
#[derive(Debug)]
pub enum StartError {
    /// Something is not as required.
    Failed(Box<Failure>),
    /// It was stopped from outside.
    Interrupted,
}

/// A cluster that is ready until [`Session::finish`].
pub struct Session {
    cluster: Rc<Cluster>,
    own: Option<lane::Cluster>,
    /// The given cluster belongs to the run.
    claim: Option<Claim>,
    /// Whether a scenario's changes could not all be undone.
    is_something_left: std::cell::Cell<bool>,
    setup: Recorder,
    /// Unit of the tear-down.
    teardown: String,
    /// Unit of the stack.
    stack: String,
    stream: Stream,
    interrupt: Interrupt,
    artifacts: PathBuf,
    must_gather: Option<MustGather>,
    scenarios: Cell<u32>,
    /// Why the stack counts as dead.
    dead: RefCell<Option<Failure>>,
}

impl Session {
    /// Sets everything up. If that fails or is interrupted, all changes are undone before this returns.
    pub async fn start(
        options: &Options,
        stream: &Stream,
        interrupt: &Interrupt,
        artifacts: &Path,
    ) -> Result<Self, StartError> {
        let unit = options.unit(SETUP);
        let teardown = options.unit(TEARDOWN);
        let stack = options.unit(STACK);
        let setup = Recorder::new(stream, &unit);
        let mut partial = Partial {
            interrupt: interrupt.clone(),
            ..Partial::default()
        };
        let result = tokio::select! {
            result = setup::run(options, &setup, &mut partial) => Some(result),
            () = interrupt.wait() => None,
        };
        let error = match result {
            Some(Ok(cluster)) => {
                stream.emit(Event::FactsFound {
                    unit,
                    facts: cluster.facts.describe(),
                });
                let must_gather = must_gather(options, partial.own.as_ref());
                return Ok(Self {
                    cluster,
                    must_gather,
                    own: partial.own,
                    claim: partial.claim,
                    is_something_left: std::cell::Cell::default(),
                    setup,
                    teardown,
                    stack,
                    stream: stream.clone(),
                    interrupt: interrupt.clone(),
                    artifacts: artifacts.to_owned(),
                    scenarios: Cell::default(),
                    dead: RefCell::default(),
                });
            }
            None => {
                setup.interrupt();
                StartError::Interrupted
            }
            Some(Err(error)) => {
                let mut failure = error.into_failure("set-up");
                if let Some(client) = &partial.client {
                    let dir = artifacts.join(unit.replace(' ', "-"));
                    collect::stack(client, &setup, &dir, &partial.restarts, &mut failure).await;
                }
                stream.emit(Event::PhaseFailed {
                    unit,
                    failure: failure.clone(),
                });
                StartError::Failed(Box::new(failure))
            }
        };
        // the end of our own cluster undoes everything
        if let (None, Some(client)) = (&partial.own, &partial.client) {
            let undone = if setup.is_clean() {
                Ok(())
            } else {
                tear_down(&setup, client, &options.run, options.deadlines.gone).await
            };
            give_back(partial.claim, undone, false, stream, &teardown).await;
        }
        take_own_down(partial.own, stream, teardown);
        Err(error)
    }

    /// Returns the cluster and its facts.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns the cluster that was brought up for this run, so that faults can be injected.
    pub fn own(&self) -> Option<&lane::Cluster> {
        self.own.as_ref()
    }

    /// Runs one scenario to its verdict and undoes its changes.
    pub async fn run(&self, scenario: &Scenario) -> Verdict {
        let started = Instant::now();
        let info = scenario.info();
        self.stream.emit(Event::ScenarioStarted {
            scenario: info.clone(),
        });
        let verdict = self.execute(scenario).await;
        let duration_ms = millis(started.elapsed());
        self.stream.emit(Event::ScenarioFinished {
            scenario: info,
            verdict: verdict.clone(),
            duration_ms,
        });
        if let Some(failure) = self.stack_failure() {
            self.stream.emit(Event::PhaseFailed {
                unit: self.stack.clone(),
                failure,
            });
        }
        verdict
    }

    /// Returns why the stack on this cluster counts as dead, if a scenario has found it so. Further scenarios would prove nothing.
    pub fn stack_failure(&self) -> Option<Failure> {
        self.dead.borrow().clone()
    }

    async fn execute(&self, scenario: &Scenario) -> Verdict {
        if self.interrupt.is_stop_requested() {
            return Verdict::Interrupted {
                reason: "the run was interrupted before it started".to_owned(),
            };
        }
        if let Some(reason) = scenario.missing(&self.cluster.facts) {
            return Verdict::Skipped {
                class: SkipClass::PrerequisiteMissing,
                reason,
            };
        }
        let number = self.scenarios.get() + 1;
        self.scenarios.set(number);
        let slug = scenario.id.replace('/', "-");
        let namespace = format!("e2e-{slug}-{}-{number}", self.cluster.run);
        let context = Context::new(
            Rc::clone(&self.cluster),
            Recorder::new(&self.stream, scenario.id),
            namespace,
        );
        let client = &self.cluster.client;
        let restarts = Restarts::count(client).await.unwrap_or_default();
        let mut initial = Vec::new();
        let result = tokio::select! {
            result = context.recorder.within(
                self.cluster.deadlines.scenario,
                body(&context, scenario, &mut initial),
            ) => Some(result),
            () = self.interrupt.wait() => None,
        };
        let recorder = &context.recorder;
        let mut verdict = match result {
            None => {
                recorder.interrupt();
                Verdict::Interrupted {
                    reason: "the run was interrupted while it ran".to_owned(),
                }
            }
            Some(Ok(())) => Verdict::Passed,
            Some(Err(StepError::Skip(reason))) => Verdict::Skipped {
                class: SkipClass::RuntimeSkip,
                reason,
            },
            Some(Err(error)) => {
                let mut failure = error.into_failure("scenario");
                let dir = self.artifacts.join(&slug);
                collect::scenario(&context, &dir, &restarts, &mut failure).await;
                if let Some(must_gather) = &self.must_gather {
                    must_gather
                        .collect(&context.recorder, &self.interrupt, &dir, &mut failure)
                        .await;
                }
                Verdict::Failed(failure)
            }
        };
        let changed = !recorder.is_clean();
        let mut after = if changed {
            recorder
                .step("everything is undone", undo_changes(recorder, client))
                .await
        } else {
            Ok(())
        };
        if after.is_err() {
            self.is_something_left.set(true);
        }
        if after.is_ok() && changed && !self.interrupt.is_stop_requested() {
            after = wait_until_restored(&context, &initial).await;
        }
        if let Err(error) = after {
            let failure = error.into_failure("undo");
            verdict = match verdict {
                Verdict::Failed(mut first) => {
                    first.details.push(format!("then: {failure}"));
                    Verdict::Failed(first)
                }
                interrupted @ Verdict::Interrupted { .. } => interrupted,
                Verdict::Passed | Verdict::Skipped { .. } => Verdict::Failed(failure),
            };
        }
        if verdict.is_failed()
            && !self.interrupt.is_stop_requested()
            && health::ended(client, &restarts)
                .await
                .is_ok_and(|ended| !ended.is_empty())
        {
            self.dead.replace(self.died(&context, &restarts).await);
        }
        verdict
    }

    /// Returns why the stack counts as dead, if it does not stay up. It may just have been restarted by the scenario.
    async fn died(&self, context: &Context, before: &Restarts) -> Option<Failure> {
        let client = &self.cluster.client;
        let mut watch = StaysUp::default();
        // longer than a container waits for its start after two crashes
        let limit = self.cluster.deadlines.running / 3;
        let stays_up = context
            .step("the stack stays up", async {
                context
                    .until("the stack stays up", limit, async || {
                        let missing = watch.look(client).await?;
                        Ok(missing.map_or(PollResult::Ready(()), PollResult::NotYet))
                    })
                    .await
            })
            .await;
        let mut failure = stays_up.err()?.into_failure(STACK);
        let dir = self.artifacts.join(self.stack.replace(' ', "-"));
        collect::stack(client, &context.recorder, &dir, before, &mut failure).await;
        Some(failure)
    }

    /// Ends the run by undoing the changes of the set-up. Returns whether that worked.
    pub async fn finish(self) -> bool {
        let mut ok = true;
        // the end of our own cluster undoes everything
        if self.own.is_none() {
            let undone = tear_down(
                &self.setup,
                &self.cluster.client,
                &self.cluster.run,
                self.cluster.deadlines.gone,
            )
            .await;
            let is_something_left = self.is_something_left.get();
            ok = give_back(
                self.claim,
                undone,
                is_something_left,
                &self.stream,
                &self.teardown,
            )
            .await;
        }
        take_own_down(self.own, &self.stream, self.teardown) && ok
    }
}

/// Returns what collects from a cluster, if the options name a program for it.
fn must_gather(options: &Options, own: Option<&lane::Cluster>) -> Option<MustGather> {
    let program = options.must_gather.clone()?;
    let kubeconfig = match (&options.cluster, own) {
        (_, Some(own)) => own.kubeconfig().into(),
        (ClusterSource::Kubeconfig(kubeconfig), None) => kubeconfig.clone(),
        (ClusterSource::Own(_), None) => return None,
    };
    Some(MustGather::new(program, kubeconfig))
}

/// Undoes the changes of the set-up and waits until nothing of the run is left.
async fn tear_down(
    setup: &Recorder,
    client: &Client,
    run: &str,
    limit: Duration,
) -> Result<(), StepError> {
    let teardown = Recorder::new(setup.stream(), TEARDOWN);
    if !setup.is_clean() {
        teardown
            .step(
                "what the set-up changed is undone",
                undo_changes(setup, client),
            )
            .await?;
    }
    namespaces_are_gone(&teardown, client, run, limit).await
}

/// Waits until the namespaces of a run are gone. Neither scenarios nor the set-up wait for the last objects of theirs.
pub(crate) async fn namespaces_are_gone(
    recorder: &Recorder,
    client: &Client,
    run: &str,
    limit: Duration,
) -> Result<(), StepError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let ours = ListParams::default().labels(&format!("{RUN_LABEL}={run}"));
    recorder
        .step("all namespaces of the run are gone", async {
            recorder
                .until("all namespaces of the run are gone", limit, async || {
                    let left = namespaces.list_metadata(&ours).await?.items;
                    let names: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
                    Ok(if names.is_empty() {
                        PollResult::Ready(())
                    } else {
                        PollResult::NotYet(format!("left: {}", names.join(", ")))
                    })
                })
                .await
        })
        .await
}

/// Gives a cluster back that was given to the run, for other runs if nothing is left on it. Returns whether everything worked.
async fn give_back(
    claim: Option<Claim>,
    undone: Result<(), StepError>,
    is_something_left: bool,
    stream: &Stream,
    unit: &str,
) -> bool {
    let is_something_left = is_something_left || undone.is_err();
    let freed = match claim {
        Some(claim) => claim.end(is_something_left).await,
        None => Ok(()),
    };
    let errors: Vec<_> = [undone, freed]
        .into_iter()
        .filter_map(Result::err)
        .collect();
    let ok = errors.is_empty();
    for error in errors {
        stream.emit(Event::PhaseFailed {
            unit: unit.to_owned(),
            failure: error.into_failure(TEARDOWN),
        });
    }
    ok
}

async fn undo_changes(recorder: &Recorder, client: &Client) -> Result<(), StepError> {
    let left = recorder.undo_all(client).await;
    if left.is_empty() {
        Ok(())
    } else {
        Err(StepError::mismatch(
            "something could not be undone",
            "nothing left",
            left.join("; "),
        ))
    }
}

async fn body(
    context: &Context,
    scenario: &Scenario,
    initial: &mut Vec<NodeTopology>,
) -> Result<(), StepError> {
    *initial = context
        .step(
            "the scenario has a namespace and the initial state is recorded",
            async {
                context.create_namespace().await?;
                context.baseline().await
            },
        )
        .await?;
    (scenario.body)(context).await
}

/// Waits until the stack runs as its resources specify and the NRTs are as they were before the scenario (scenarios-serial.md 4.2).
async fn wait_until_restored(context: &Context, initial: &[NodeTopology]) -> Result<(), StepError> {
    context
        .step("the stack runs as specified", async {
            // an operator that a scenario has configured acts on what the next one does for as long as it runs
            context.operator_rolled_out().await?;
            context.operands_rolled_out().await
        })
        .await?;
    if initial.is_empty() {
        return Ok(());
    }
    context
        .step("the NRTs are as before the scenario", async {
            context
                .until(
                    "the NRTs are as before the scenario",
                    context.deadlines().settled,
                    async || {
                        let now = topologies(&context.client()).await?;
                        Ok(match difference(initial, &now) {
                            None => PollResult::Ready(()),
                            Some(difference) => PollResult::NotYet(difference),
                        })
                    },
                )
                .await
        })
        .await
}

fn take_own_down(own: Option<lane::Cluster>, stream: &Stream, unit: String) -> bool {
    let Some(own) = own else { return true };
    match own.down() {
        Ok(()) => true,
        Err(error) => {
            let failure = Failure {
                step: "the cluster is taken down".to_owned(),
                message: crate::context::chain(&error),
                ..Failure::default()
            };
            stream.emit(Event::PhaseFailed { unit, failure });
            false
        }
    }
}
