//! Waiting in tests that look at programs from outside.

use std::time::{Duration, Instant};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks until `check` returns a value, which is returned.
///
/// # Errors
/// Returns what the last look saw, the error of `check`, when there is no value within the limit.
pub async fn eventually<T>(
    limit: Duration,
    check: impl AsyncFn() -> Result<T, String>,
) -> Result<T, String> {
    let deadline = Instant::now() + limit;
    loop {
        match check().await {
            Ok(value) => return Ok(value),
            Err(seen) if Instant::now() >= deadline => {
                return Err(format!(
                    "not within {} s, seen last: {seen}",
                    limit.as_secs()
                ));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
