//! Waiting in tests that look at programs from outside.

use std::time::Duration;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks until `check` returns a value, which is returned.
///
/// # Errors
/// Returns what the last look saw, the error of `check`, when there is no value within the limit. A look that hangs ends with the limit, too.
pub async fn eventually<T>(
    limit: Duration,
    mut check: impl AsyncFnMut() -> Result<T, String>,
) -> Result<T, String> {
    let mut last = "nothing".to_owned();
    let looks = async {
        loop {
            match check().await {
                Ok(value) => return value,
                Err(seen) => last = seen,
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let found = tokio::time::timeout(limit, looks).await;
    found.map_err(|_| format!("not within {} s, seen last: {last}", limit.as_secs()))
}
