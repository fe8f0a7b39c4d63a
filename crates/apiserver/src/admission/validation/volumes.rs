//! Checks of the sources of volumes, in pods and in volumes of their own.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::checks::{filled, indexed, name, one_of, text, wrong};
use super::{claims, fields, meta, names};
use crate::failure::Cause;
use crate::values::fields::elements;
use crate::values::quantity;

mod remote;

use self::remote::Owner;

const SEVERAL: &str = "may not specify more than 1 volume type";
const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
/// The sources of a pod's volumes, in the order in which a real server looks at them; where the path of a second one is not its name, that path.
const SOURCES: [(&str, &str); 30] = [
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];
/// The same of volumes of their own.
const OWN_SOURCES: [(&str, &str); 22] = [
    ("hostPath", "hostPath"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("nfs", "nfs"),
    ("rbd", "rbd"),
    ("quobyte", "quobyte"),
    ("cephfs", "cephFS"),
    ("iscsi", "iscsi"),
    ("cinder", "cinder"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("scaleIO", "scaleIO"),
    ("local", "local"),
    ("storageos", "storageos"),
    ("csi", "csi"),
];

/// Checks the volumes of a pod; returns those that are right, by their names.
pub(super) fn of_pod<'a>(
    list: &'a Value,
    pod: &str,
    path: &str,
    causes: &mut Vec<Cause>,
) -> HashMap<&'a str, &'a Value> {
    let created: HashSet<String> = elements(list)
        .filter(|volume| !pod.is_empty() && !volume["ephemeral"].is_null())
        .map(|volume| format!("{pod}-{}", text(&volume["name"])))
        .collect();
    let mut right = HashMap::new();
    for (at, volume) in indexed(list, path) {
        let (name, at_name) = (text(&volume["name"]), format!("{at}.name"));
        let mut found = Vec::new();
        source(volume, pod, &at, &mut found);
        if name.is_empty() {
            found.push(Cause::required(&*at_name, ""));
        } else {
            wrong(names::label(name), name, &at_name, &mut found);
        }
        if right.contains_key(name) {
            found.push(Cause::duplicate(at_name, &json!(name)));
        }
        if found.is_empty() {
            right.insert(name, volume);
        }
        causes.extend(found);
        let claim = &volume["persistentVolumeClaim"]["claimName"];
        if created.contains(text(claim)) {
            let why = "must not reference a PVC that gets created for an ephemeral volume";
            let at = format!("{at}.persistentVolumeClaim.claimName");
            causes.push(Cause::invalid(at, claim, why));
        }
    }
    right
}

/// Returns the first source that is given; the others are refused.
fn only_source(
    volume: &Value,
    sources: &[(&'static str, &str)],
    path: &str,
    causes: &mut Vec<Cause>,
) -> Option<&'static str> {
    let mut first = None;
    for (field, shown) in sources {
        if volume[*field].is_null() {
            continue;
        }
        if first.is_none() {
            first = Some(*field);
        } else if *field != "flexVolume" || path != "spec" {
            causes.push(Cause::forbidden(format!("{path}.{shown}"), SEVERAL));
        }
    }
    if first.is_none() {
        causes.push(Cause::required(path, "must specify a volume type"));
    }
    first
}

fn source(volume: &Value, pod: &str, path: &str, causes: &mut Vec<Cause>) {
    let Some(kind) = only_source(volume, &SOURCES, path, causes) else {
        return;
    };
    let (value, at) = (&volume[kind], format!("{path}.{kind}"));
    match kind {
        "emptyDir" => {
            if quantity::amount(&value["sizeLimit"]).is_negative() {
                let why = "SizeLimit field must be a valid resource quantity";
                causes.push(Cause::forbidden(format!("{at}.sizeLimit"), why));
            }
        }
        "secret" => files(value, "secretName", &at, causes),
        "configMap" => files(value, "name", &at, causes),
        "downwardAPI" => {
            mode(&value["defaultMode"], &format!("{at}.defaultMode"), causes);
            for item in elements(&value["items"]) {
                downward_file(item, &at, causes);
            }
        }
        "projected" => projected(value, &at, causes),
        "csi" => {
            driver(&value["driver"], &format!("{at}.driver"), causes);
            let secret = &value["nodePublishSecretRef"];
            if !secret.is_null() && !filled(&secret["name"]) {
                causes.push(Cause::required(
                    format!("{at}.nodePublishSecretRef.name"),
                    "",
                ));
            } else if !secret.is_null() {
                let name = text(&secret["name"]);
                wrong(names::subdomain(name), name, &format!("{at}.name"), causes);
            }
        }
        "ephemeral" => {
            let (template, at) = (
                &value["volumeClaimTemplate"],
                format!("{at}.volumeClaimTemplate"),
            );
            if template.is_null() {
                causes.push(Cause::required(at, ""));
            } else {
                meta::of_template(&template["metadata"], &format!("{at}.metadata"), causes);
                claims::claim(&template["spec"], &format!("{at}.spec"), causes);
            }
            let name = text(&volume["name"]);
            if !pod.is_empty() && !name.is_empty() {
                let claim = format!("{pod}-{name}");
                for why in names::subdomain(&claim) {
                    let why = format!("PVC name {claim:?}: {why}");
                    causes.push(Cause::invalid(format!("{path}.name"), &json!(name), &why));
                }
            }
        }
        _ => common(kind, value, Owner::Pod, &at, causes),
    }
}

/// Checks the source of a volume of its own, which has a name.
pub(super) fn source_of_volume(spec: &Value, name: &str, causes: &mut Vec<Cause>) {
    let Some(kind) = only_source(spec, &OWN_SOURCES, "spec", causes) else {
        return;
    };
    let (value, at) = (&spec[kind], format!("spec.{kind}"));
    let flexible = &spec["flexVolume"];
    if kind != "flexVolume" && !flexible.is_null() {
        // a real server does not mind it beside another source, but looks at it
        let at = "spec.flexVolume";
        common("flexVolume", flexible, Owner::Volume(name), at, causes);
    }
    match kind {
        "local" => {
            path_in(value, &at, causes);
            if spec["nodeAffinity"].is_null() {
                let why = "Local volume requires node affinity";
                causes.push(Cause::required("spec.nodeAffinity", why));
            }
        }
        "csi" => {
            driver(&value["driver"], &format!("{at}.driver"), causes);
            if !filled(&value["volumeHandle"]) {
                causes.push(Cause::required(format!("{at}.volumeHandle"), ""));
            }
            for secret in [
                "controllerPublishSecretRef",
                "controllerExpandSecretRef",
                "nodePublishSecretRef",
                "nodeExpandSecretRef",
            ] {
                if !value[secret].is_null() {
                    secret_anywhere(&value[secret], &format!("{at}.{secret}"), causes);
                }
            }
        }
        _ => common(kind, value, Owner::Volume(name), &at, causes),
    }
}

/// Checks sources that are the same in both places.
fn common(kind: &str, value: &Value, owner: Owner<'_>, path: &str, causes: &mut Vec<Cause>) {
    if kind != "hostPath" {
        // a real server has this name of it in paths only
        let path = path.replace("gcePersistentDisk", "persistentDisk");
        remote::check(kind, value, owner, &path, causes);
        return;
    }
    let types = [
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ];
    if path_in(value, path, causes) && !value["type"].is_null() {
        one_of(&value["type"], &types, &format!("{path}.type"), causes);
    }
}

/// Checks the path of a volume on its node; returns whether there is one.
fn path_in(value: &Value, path: &str, causes: &mut Vec<Cause>) -> bool {
    let (given, at) = (text(&value["path"]), format!("{path}.path"));
    if given.is_empty() {
        causes.push(Cause::required(at, ""));
        return false;
    }
    no_steps_back(given, &at, causes);
    true
}

/// Refuses a path that leads upwards.
pub(super) fn no_steps_back(given: &str, path: &str, causes: &mut Vec<Cause>) {
    if given.split('/').any(|part| part == "..") {
        causes.push(Cause::invalid(path, &json!(given), "must not contain '..'"));
    }
}

/// Refuses a path that leads outside.
pub(super) fn descending(given: &str, path: &str, causes: &mut Vec<Cause>) {
    if given.starts_with('/') {
        causes.push(Cause::invalid(
            path,
            &json!(given),
            "must be a relative path",
        ));
    }
    no_steps_back(given, path, causes);
}

fn not_reserved(given: &str, path: &str, causes: &mut Vec<Cause>) {
    descending(given, path, causes);
    if given.starts_with("..") && !given.starts_with("../") {
        causes.push(Cause::invalid(
            path,
            &json!(given),
            "must not start with '..'",
        ));
    }
}

fn mode(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if value
        .as_i64()
        .is_some_and(|mode| !(0..=0o777).contains(&mode))
    {
        causes.push(Cause::invalid(path, value, MODE));
    }
}

/// Checks files that come from the keys of an object.
fn files(value: &Value, name: &str, path: &str, causes: &mut Vec<Cause>) {
    if !filled(&value[name]) {
        causes.push(Cause::required(format!("{path}.{name}"), ""));
    }
    mode(
        &value["defaultMode"],
        &format!("{path}.defaultMode"),
        causes,
    );
    items(value, path, causes);
}

fn items(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (at, item) in indexed(&value["items"], &format!("{path}.items")) {
        for field in ["key", "path"] {
            if !filled(&item[field]) {
                causes.push(Cause::required(format!("{at}.{field}"), ""));
            }
        }
        not_reserved(text(&item["path"]), &format!("{at}.path"), causes);
        mode(&item["mode"], &format!("{at}.mode"), causes);
    }
}

/// Checks a file with a field of the pod; what is wrong is told of the volume.
fn downward_file(file: &Value, path: &str, causes: &mut Vec<Cause>) {
    let at = format!("{path}.path");
    if !filled(&file["path"]) {
        causes.push(Cause::required(&*at, ""));
    }
    not_reserved(text(&file["path"]), &at, causes);
    let (field, resource) = (&file["fieldRef"], &file["resourceFieldRef"]);
    if !field.is_null() {
        fields::of_volume(field, &format!("{path}.fieldRef"), causes);
        if !resource.is_null() {
            let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
            causes.push(Cause::invalid(path, &json!("resource"), why));
        }
    } else if !resource.is_null() {
        fields::resource(resource, true, &format!("{path}.resourceFieldRef"), causes);
    } else {
        let why = "one of fieldRef and resourceFieldRef is required";
        causes.push(Cause::required(path, why));
    }
    mode(&file["mode"], &format!("{path}.mode"), causes);
}

fn projected(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    mode(
        &value["defaultMode"],
        &format!("{path}.defaultMode"),
        causes,
    );
    let mut paths = HashSet::new();
    let mut unique = |given: &str, shown: &str, causes: &mut Vec<Cause>| {
        if !given.is_empty() && !paths.insert(given.to_owned()) {
            let why = "conflicting duplicate paths";
            causes.push(Cause::invalid(path, &json!(shown), why));
        }
    };
    for (at, source) in indexed(&value["sources"], &format!("{path}.sources")) {
        for kind in ["secret", "configMap"] {
            let (object, at) = (&source[kind], format!("{at}.{kind}"));
            if object.is_null() {
                continue;
            }
            if !filled(&object["name"]) {
                causes.push(Cause::required(format!("{at}.name"), ""));
            }
            items(object, &at, causes);
            for item in elements(&object["items"]) {
                unique(text(&item["path"]), text(&object["name"]), causes);
            }
        }
        for item in elements(&source["downwardAPI"]["items"]) {
            downward_file(item, &format!("{at}.downwardAPI"), causes);
            unique(text(&item["path"]), text(&item["path"]), causes);
        }
        let token = &source["serviceAccountToken"];
        if !token.is_null() {
            token_file(token, &format!("{at}.serviceAccountToken"), path, causes);
        }
        if source.as_object().is_some_and(|sources| sources.len() > 1) {
            let why = "may not specify more than 1 volume type per source";
            causes.push(Cause::forbidden(at, why));
        }
    }
}

fn token_file(token: &Value, path: &str, volume: &str, causes: &mut Vec<Cause>) {
    let (seconds, at) = (
        &token["expirationSeconds"],
        format!("{path}.expirationSeconds"),
    );
    match seconds.as_i64().unwrap_or_default() {
        number if number < 600 => {
            let why = "may not specify a duration less than 10 minutes";
            causes.push(Cause::invalid(at, seconds, why));
        }
        number if number > 1 << 32 => {
            let why = "may not specify a duration larger than 2^32 seconds";
            causes.push(Cause::invalid(at, seconds, why));
        }
        _ => {}
    }
    let (given, at) = (text(&token["path"]), format!("{volume}.path"));
    if given.is_empty() {
        causes.push(Cause::required(at, ""));
    } else {
        not_reserved(given, &at, causes);
    }
}

/// Checks the name of a driver.
pub(super) fn driver(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let name = text(value);
    if name.is_empty() {
        causes.push(Cause::required(path, ""));
        return;
    }
    if name.len() > 63 {
        causes.push(Cause::too_long(path, 63));
    }
    wrong(names::driver(name), name, path, causes);
}

/// Checks a reference to a secret in any namespace.
pub(super) fn secret_anywhere(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    name(
        &value["name"],
        names::subdomain,
        &format!("{path}.name"),
        causes,
    );
    name(
        &value["namespace"],
        names::label,
        &format!("{path}.namespace"),
        causes,
    );
}
