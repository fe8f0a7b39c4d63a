//! What the scores of several plugins share: their range, and how raw scores are stretched to it.

/// Highest score of one plugin.
pub const MAX: i64 = 100;

/// Scales raw scores so that the largest becomes [`MAX`]. If `reversed`, the largest becomes 0, and scores that are all zero become [`MAX`].
pub(crate) fn normalize(scores: Vec<i64>, reversed: bool) -> Vec<i64> {
    let largest = scores.iter().copied().max().unwrap_or(0);
    let scale = |score: i64| {
        if largest == 0 {
            0
        } else {
            score * MAX / largest
        }
    };
    scores
        .into_iter()
        .map(scale)
        .map(|score| if reversed { MAX - score } else { score })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::plain(&[0, 1, 4], false, &[0, 25, 100])]
    #[case::reversed(&[0, 1, 4], true, &[100, 75, 0])]
    #[case::zeros(&[0, 0], false, &[0, 0])]
    #[case::zeros_reversed(&[0, 0], true, &[100, 100])]
    fn scores_are_stretched(#[case] raw: &[i64], #[case] reversed: bool, #[case] expected: &[i64]) {
        assert_eq!(normalize(raw.to_vec(), reversed), expected);
    }
}
