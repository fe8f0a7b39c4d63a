//! Signs and verifies tokens with ring, which everything here does its cryptography with. The library for tokens brings other providers only.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, UnparsedPublicKey,
};
use signature::{Error, Signer, Verifier};

/// The one algorithm of this server's tokens.
pub(super) const ALGORITHM: Algorithm = Algorithm::ES256;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory,
    verifier_factory,
    // only for JSON Web Keys, which this server writes itself
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes the library use this module, once in each process.
pub(super) fn install() {
    // fails where it is installed already
    let _ = PROVIDER.install_default();
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is the library's"
)]
fn signer_factory(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    expect(*algorithm)?;
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_bytes(), &random);
    let pair = pair.map_err(|_| ErrorKind::InvalidEcdsaKey)?;
    Ok(Box::new(Es256Signer { pair, random }))
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is the library's"
)]
fn verifier_factory(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    expect(*algorithm)?;
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.try_get_as_bytes()?.to_vec());
    Ok(Box::new(Es256Verifier(key)))
}

fn expect(algorithm: Algorithm) -> Result<()> {
    if algorithm == ALGORITHM {
        Ok(())
    } else {
        Err(ErrorKind::InvalidAlgorithm.into())
    }
}

struct Es256Signer {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl Signer<Vec<u8>> for Es256Signer {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, Error> {
        let signature = self.pair.sign(&self.random, message);
        signature
            .map(|signature| signature.as_ref().to_vec())
            .map_err(|_| Error::new())
    }
}

impl JwtSigner for Es256Signer {
    fn algorithm(&self) -> Algorithm {
        ALGORITHM
    }
}

struct Es256Verifier(UnparsedPublicKey<Vec<u8>>);

impl Verifier<Vec<u8>> for Es256Verifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        self.0.verify(message, signature).map_err(|_| Error::new())
    }
}

impl JwtVerifier for Es256Verifier {
    fn algorithm(&self) -> Algorithm {
        ALGORITHM
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{Header, Validation, decode, encode};
    use rcgen::PublicKeyData as _;
    use serde_json::{Value, json};

    use super::*;

    fn keys() -> (EncodingKey, DecodingKey) {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        (
            EncodingKey::from_ec_der(&pair.serialize_der()),
            DecodingKey::from_ec_der(pair.der_bytes()),
        )
    }

    #[test]
    fn a_token_is_accepted_by_its_key_alone_and_only_unchanged() {
        install();
        let (signing, verifying) = keys();
        let claims = json!({"exp": 4_102_444_800_u64, "sub": "a"});
        let token = encode(&Header::new(ALGORITHM), &claims, &signing).unwrap();
        let rules = Validation::new(ALGORITHM);
        let accepted = decode::<Value>(&token, &verifying, &rules).unwrap();
        assert_eq!(accepted.claims, claims);

        let (_, of_others) = keys();
        assert!(decode::<Value>(&token, &of_others, &rules).is_err());
        let other = json!({"exp": 4_102_444_800_u64, "sub": "b"});
        let other = encode(&Header::new(ALGORITHM), &other, &signing).unwrap();
        let (body, _) = other.rsplit_once('.').unwrap();
        let (_, signature) = token.rsplit_once('.').unwrap();
        let mixed = format!("{body}.{signature}");
        assert!(decode::<Value>(&mixed, &verifying, &rules).is_err());
    }

    #[test]
    fn no_other_algorithm_signs() {
        install();
        let (signing, _) = keys();
        let signed = encode(&Header::new(Algorithm::ES384), &json!({}), &signing);
        assert!(signed.is_err());
    }
}
