//! The loop: takes changes, tries pods, and has done what follows from them.
//!
//! Everything between two awaits is synchronous, so an attempt sees one consistent state and nothing can change concurrently.
//!
//! In reading order:
//! - this file: the loop.
//! - [`message`]: what it is told; [`effect`]: what has to be done outside.
//! - [`core`](mod@core): all state. It takes a message, or tries the next pod, and gives back the effects.
//! - [`requests`]: carries out the effects.

use core::Core;
use std::time::Duration;

use daemon::admin::{Gate, Watchdog};
use daemon::lease::Leadership;
use jiff::Timestamp;
use message::Message;
use requests::Requests;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api_tasks::status_dump::{self, StatusDump};

pub mod core;
pub mod effect;
pub mod message;
pub mod requests;

/// Maximum number of changes that are taken before the next attempt.
const BATCH: usize = 512;
/// Interval between two turns of the loop when no event arrives.
const IDLE: Duration = Duration::from_secs(10);
/// Minimum interval between two publications of sizes: counting takes time that attempts need.
const SIZES: Duration = Duration::from_secs(1);

/// The result of leader election, for which [`Engine::run`] waits before it schedules.
#[derive(Debug)]
pub enum Election {
    /// The program was stopped before it held the lease.
    Stopped,
    /// Leader election is disabled.
    NotRequired,
    /// The lease is held.
    Leading(Leadership),
}

/// How the loop ended.
#[derive(Debug)]
pub enum End {
    /// The program is to stop. The lease, if there is one, is still held.
    Stopped(Option<Leadership>),
    /// The lease is lost: another scheduler may be at work.
    LostLease,
}

/// The loop with all state.
pub struct Engine {
    core: Core,
    requests: Requests,
    /// Records which pod sets are compared, if that is asked for.
    dump: Option<StatusDump>,
    /// Notices a turn that hangs.
    watchdog: Watchdog,
}

impl Engine {
    /// Creates an engine.
    pub fn new(
        core: Core,
        requests: Requests,
        dump: Option<StatusDump>,
        watchdog: Watchdog,
    ) -> Self {
        Self {
            core,
            requests,
            dump,
            watchdog,
        }
    }

    /// Runs until it is stopped or the lease is lost. Schedules once everything is known and the lease, if any, is held.
    pub async fn run(
        &mut self,
        mut changes: mpsc::Receiver<Message>,
        synced: &Gate,
        mut election: JoinHandle<Election>,
        stop: &CancellationToken,
    ) -> anyhow::Result<End> {
        let mut leadership: Option<Leadership> = None;
        let mut leading = false;
        let lost = CancellationToken::new();
        let mut lost_lease = lost.clone();
        let mut sizes_due = Instant::now();
        loop {
            let turn = self.watchdog.turn();
            let active = leading && self.core.is_synced();
            if active {
                let effects = self.core.attempt_next();
                self.requests.carry_out(effects);
            }
            let ready = active && self.core.has_ready_pod();
            let idle = Instant::now() + IDLE;
            let limit = self.core.next_due(active).map_or(idle, |due| due.min(idle));
            drop(turn);
            let taken = tokio::select! {
                biased;
                () = lost_lease.cancelled() => return Ok(End::LostLease),
                () = stop.cancelled() => return Ok(End::Stopped(leadership)),
                elected = &mut election, if !leading => {
                    leading = true;
                    match elected? {
                        Election::Stopped => return Ok(End::Stopped(None)),
                        Election::NotRequired => {}
                        Election::Leading(held) => {
                            lost_lease = held.lost();
                            leadership = Some(held);
                        }
                    }
                    None
                }
                message = changes.recv() => {
                    let Some(message) = message else { return Ok(End::Stopped(leadership)) };
                    Some(message)
                }
                // not a timer, which would round up to its next tick
                () = tokio::task::yield_now(), if ready => None,
                () = tokio::time::sleep_until(limit) => None,
            };
            let _turn = self.watchdog.turn();
            if let Some(message) = taken {
                self.take_batch(message, &mut changes);
                if self.core.is_synced() && !synced.is_open() {
                    let (nodes, pods) = self.core.counts();
                    tracing::info!(nodes, pods, "All caches are synced");
                    synced.open();
                }
            }
            self.requests.forget_ended();
            let effects = self.core.expire(Instant::now());
            self.requests.carry_out(effects);
            self.dump_checks();
            if Instant::now() >= sizes_due {
                self.core.publish_sizes();
                sizes_due = Instant::now() + SIZES;
            }
        }
    }

    /// Takes a message and those that wait behind it.
    fn take_batch(&mut self, first: Message, changes: &mut mpsc::Receiver<Message>) {
        let effects = self.core.take(first);
        self.requests.carry_out(effects);
        for _ in 0..BATCH {
            let Ok(message) = changes.try_recv() else {
                break;
            };
            let effects = self.core.take(message);
            self.requests.carry_out(effects);
        }
    }

    fn dump_checks(&mut self) {
        let Some(dump) = &mut self.dump else { return };
        for check in self.core.take_checks() {
            dump.add(check, Timestamp::now());
        }
        if let Some(files) = dump.due(Instant::now()) {
            // Not joined: the next write replaces what this one leaves.
            drop(tokio::task::spawn_blocking(|| status_dump::write(files)));
        }
    }

    /// Waits for the bindings in progress, at most `limit`.
    pub async fn finish(self, limit: Duration) {
        self.requests.finish(limit).await;
    }
}
