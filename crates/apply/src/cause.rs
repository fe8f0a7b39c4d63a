//! The cause of a failed call, with the message of the API server.

use std::error::Error;
use std::fmt;

use crate::again::is_unanswered;

/// A failed call. Unlike kube's error it prints the message of the API server once, without the type that carries it.
#[derive(Debug)]
pub struct Cause(Box<kube::Error>);

impl Cause {
    /// Returns whether the API server does not know the object or the kind. For an unknown kind its answer has no readable reason.
    pub fn is_not_found(&self) -> bool {
        matches!(&*self.0, kube::Error::Api(status) if status.code == 404)
    }

    /// Returns whether the user lacks the right to the call.
    pub fn is_forbidden(&self) -> bool {
        matches!(&*self.0, kube::Error::Api(status) if status.code == 403)
    }

    /// Returns whether nothing tells whether the call was carried out.
    pub fn is_unanswered(&self) -> bool {
        is_unanswered(&self.0)
    }

    /// Returns whether the object appeared, vanished or changed between a read and the write that failed.
    pub(crate) fn is_race(&self) -> bool {
        matches!(&*self.0, kube::Error::Api(status) if matches!(status.code, 404 | 409))
    }
}

impl From<kube::Error> for Cause {
    fn from(error: kube::Error) -> Self {
        Self(Box::new(error))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            kube::Error::Api(status) => f.write_str(&status.message),
            other => other.fmt(f),
        }
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &*self.0 {
            // it would repeat the message
            kube::Error::Api(_) => None,
            other => other.source(),
        }
    }
}
