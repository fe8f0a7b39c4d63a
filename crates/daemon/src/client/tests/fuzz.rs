//! Kubeconfigs: no file keeps the client from saying what is wrong with it.

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use crate::client::{Options, build, install_crypto_provider};

/// A certificate and its key in base64, as kubeconfigs have them.
fn credentials() -> [String; 2] {
    let names = vec!["localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let parts = [
        ("CERTIFICATE", made.cert.der().to_vec()),
        ("PRIVATE KEY", made.signing_key.serialize_der()),
    ];
    parts.map(|(what, bytes)| {
        let pem = format!(
            "-----BEGIN {what}-----\n{}\n-----END {what}-----\n",
            base64(bytes)
        );
        base64(pem.into_bytes())
    })
}

fn base64(bytes: Vec<u8>) -> String {
    let text = serde_json::to_value(k8s_openapi::ByteString(bytes)).expect("JSON");
    text.as_str().expect("text").to_owned()
}

#[test]
fn no_kubeconfig_stops_the_client() {
    install_crypto_provider();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let [certificate, key] = credentials();
    // no command for credentials: a changed one would be run
    let seed = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "preferences": {},
        "clusters": [{"name": "k", "cluster": {"server": "https://one:6443", "certificate-authority-data": certificate, "tls-server-name": "one", "insecure-skip-tls-verify": false, "disable-compression": true}}],
        "users": [
            {"name": "u", "user": {"token": "secret", "client-certificate-data": certificate, "client-key-data": key, "as": "other", "as-groups": ["g"]}},
            {"name": "basic", "user": {"username": "n", "password": "p", "auth-provider": {"name": "oidc", "config": {"id-token": "t"}}}},
        ],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "ns"}}, {"name": "b", "context": {"cluster": "k", "user": "basic"}}],
    });
    ::fuzz::run(file!(), |input| {
        let mut changed = seed.clone();
        ::fuzz::mutate::document(&mut changed, input)?;
        let text = ::fuzz::mutate::text(&changed.to_string(), input)?;
        let Ok(file) = Kubeconfig::from_yaml(&text) else {
            return Ok(());
        };
        let options = KubeConfigOptions {
            context: Some((*input.choose(&["c", "b"])?).to_owned()),
            ..KubeConfigOptions::default()
        };
        runtime.block_on(async {
            if let Ok(config) = kube::Config::from_custom_kubeconfig(file, &options).await {
                drop(build(config, Options::default()));
                // lets the task end that sent the client's requests
                tokio::task::yield_now().await;
            }
        });
        Ok(())
    });
}
