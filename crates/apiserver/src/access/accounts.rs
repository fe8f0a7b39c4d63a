//! Tokens of service accounts. This server signs them; they are valid for a time, for audiences, and as long as the objects that they are
//! bound to exist.

use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::es256;
use super::identity::{ACCOUNT_USER_PREFIX, Identity, User};
use crate::access::identity::account_groups;
use crate::storage::State;

/// Seconds for which a token stays valid after the deletion timestamp of its account or of the object that it is bound to.
const DELETION_LEEWAY: i64 = 60;

/// An object that a token names.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ObjectReference {
    /// Name.
    pub(crate) name: String,
    /// Unique id.
    #[serde(default)]
    pub(crate) uid: String,
}

/// The claims that only tokens of Kubernetes have.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Private {
    /// Namespace of the account.
    pub(crate) namespace: String,
    /// The account.
    pub(crate) serviceaccount: ObjectReference,
    /// The pod that the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<ObjectReference>,
    /// The secret that the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<ObjectReference>,
    /// The node that the token is bound to, or that its pod runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<ObjectReference>,
    /// When clients should have fetched a new token, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) warnafter: Option<i64>,
}

/// The claims of a token.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Claims {
    /// Its audiences.
    pub(crate) aud: Vec<String>,
    /// When it expires, in seconds since 1970.
    pub(crate) exp: i64,
    /// When it was issued, in seconds since 1970.
    pub(crate) iat: i64,
    /// Its issuer.
    pub(crate) iss: String,
    /// The id of the token itself.
    pub(crate) jti: String,
    /// The account and what the token is bound to.
    #[serde(rename = "kubernetes.io")]
    pub(crate) private: Private,
    /// When it becomes valid, in seconds since 1970.
    pub(crate) nbf: i64,
    /// Name of the user.
    pub(crate) sub: String,
}

/// Issues tokens and verifies them.
pub(crate) struct Accounts {
    issuer: String,
    key_id: String,
    signing: EncodingKey,
    verifying: DecodingKey,
    /// The public key as a JSON Web Key Set.
    public: Value,
}

impl std::fmt::Debug for Accounts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Accounts")
            .field("issuer", &self.issuer)
            .field("key_id", &self.key_id)
            .finish_non_exhaustive()
    }
}

/// Returns the present time in seconds since 1970.
pub(crate) fn unix_time() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_secs()).ok())
        .unwrap_or_default()
}

impl Accounts {
    /// Makes the accounts of a new cluster, with a new key.
    pub(crate) fn new(issuer: String) -> Result<Self, rcgen::Error> {
        use base64::Engine as _;
        use rcgen::PublicKeyData as _;
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
        let point = key.der_bytes();
        // an uncompressed point: a marker byte, then both coordinates
        let (x, y) = point
            .get(1..)
            .unwrap_or_default()
            .split_at(32.min(point.len().saturating_sub(1)));
        es256::install();
        let key_id = encode(uuid::Uuid::new_v4().as_bytes());
        Ok(Self {
            issuer,
            signing: EncodingKey::from_ec_der(&key.serialize_der()),
            verifying: DecodingKey::from_ec_der(point),
            public: serde_json::json!({"keys": [{"use": "sig", "kty": "EC", "kid": key_id, "crv": "P-256", "alg": "ES256",
                "x": encode(x), "y": encode(y)}]}),
            key_id,
        })
    }

    /// Returns the issuer of the tokens.
    pub(crate) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Returns the keys that verify tokens, as a JSON Web Key Set.
    pub(crate) fn public_keys(&self) -> &Value {
        &self.public
    }

    /// Returns the discovery document, which says where the keys are.
    pub(crate) fn discovery(&self) -> Value {
        serde_json::json!({
            "issuer": self.issuer, "jwks_uri": format!("{}/openid/v1/jwks", self.issuer),
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// Signs a token.
    pub(crate) fn sign(&self, claims: &Claims) -> Result<String, jsonwebtoken::errors::Error> {
        let mut header = Header::new(es256::ALGORITHM);
        header.typ = None;
        header.kid = Some(self.key_id.clone());
        jsonwebtoken::encode(&header, claims, &self.signing)
    }

    /// Returns the claims of a token if this server issued it, it is valid now, and it is for one of the audiences (none: this server
    /// itself).
    pub(crate) fn verify(
        &self,
        token: &str,
        audiences: Option<&[String]>,
    ) -> Result<Claims, String> {
        let mut validation = Validation::new(es256::ALGORITHM);
        validation.leeway = 0;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.issuer]);
        match audiences {
            Some(audiences) => validation.set_audience(audiences),
            None => validation.set_audience(&[&self.issuer]),
        }
        jsonwebtoken::decode::<Claims>(token, &self.verifying, &validation)
            .map(|data| data.claims)
            .map_err(|error| format!("[invalid bearer token, {error}]"))
    }

    /// Returns the user of a verified token; `None` when the account or the object that the token is bound to no longer exists.
    #[expect(
        clippy::unused_self,
        reason = "only meaningful on the accounts that verified the token"
    )]
    pub(crate) fn identity(&self, state: &State, claims: &Claims) -> Option<Identity> {
        let Private {
            namespace,
            serviceaccount,
            pod,
            secret,
            node,
            ..
        } = &claims.private;
        let exists = |resource: &str, namespace: &str, named: &ObjectReference| {
            let object = state.get(resource, namespace, &named.name)?;
            let ends = object["metadata"]["deletionTimestamp"]
                .as_str()
                .and_then(|text| text.parse::<jiff::Timestamp>().ok());
            let expired = ends.is_some_and(|ends| ends.as_second() + DELETION_LEEWAY < unix_time());
            (object["metadata"]["uid"] == named.uid.as_str() && !expired).then_some(())
        };
        exists("serviceaccounts", namespace, serviceaccount)?;
        let mut identity = Identity::of(User {
            name: format!("{ACCOUNT_USER_PREFIX}{namespace}:{}", serviceaccount.name),
            groups: account_groups(namespace),
            uid: serviceaccount.uid.clone(),
        });
        let mut add = |key: &str, value: &str| {
            identity.extra.insert(
                format!("authentication.kubernetes.io/{key}"),
                vec![value.to_owned()],
            );
        };
        add("credential-id", &format!("JTI={}", claims.jti));
        if let Some(pod) = pod {
            exists("pods", namespace, pod)?;
            add("pod-name", &pod.name);
            add("pod-uid", &pod.uid);
        }
        if let Some(secret) = secret {
            exists("secrets", namespace, secret)?;
        }
        if let Some(node) = node {
            if pod.is_none() {
                exists("nodes", "", node)?;
            }
            add("node-name", &node.name);
            add("node-uid", &node.uid);
        }
        Some(identity)
    }
}
