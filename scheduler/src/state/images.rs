//! Images identified by a number that is computed from their full name.
//!
//! Nodes list each image under several long names. The only question is whether a node has an image, so the names are not kept.

use std::hash::{DefaultHasher, Hasher as _};

use k8s_openapi::api::core::v1::{ContainerImage, PodSpec};

/// Identifies an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageId(u64);

impl ImageId {
    /// Returns the id of the image of that name. A name without a tag means `:latest`.
    pub fn new(name: &str) -> Self {
        // a colon before the last slash belongs to the port of a registry
        let tag = if name.rfind(':') <= name.rfind('/') {
            ":latest"
        } else {
            ""
        };
        let mut hasher = DefaultHasher::new();
        hasher.write(name.as_bytes());
        hasher.write(tag.as_bytes());
        Self(hasher.finish())
    }
}

/// The images of a node with their sizes in bytes, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images(Vec<(ImageId, i64)>);

impl Images {
    /// Reads the images of a node's status, under all their names.
    pub fn read(images: &[ContainerImage]) -> Self {
        let mut list: Vec<(ImageId, i64)> = images
            .iter()
            .flat_map(|image| {
                let size = image.size_bytes.unwrap_or(0);
                let names = image.names.iter().flatten();
                names.map(move |name| (ImageId::new(name), size))
            })
            .collect();
        list.sort_unstable();
        list.dedup_by_key(|(id, _)| *id);
        list.shrink_to_fit();
        Self(list)
    }

    /// Returns the size of an image in bytes, if the node has it.
    pub fn size(&self, image: ImageId) -> Option<i64> {
        let index = self.0.binary_search_by_key(&image, |(id, _)| *id).ok()?;
        Some(self.0[index].1)
    }

    /// Iterates over all images.
    pub fn ids(&self) -> impl Iterator<Item = ImageId> {
        self.0.iter().map(|(id, _)| *id)
    }
}

/// Returns the image of each container of a pod, init containers first.
pub fn of_pod(spec: &PodSpec) -> Vec<ImageId> {
    spec.init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
        .map(|container| ImageId::new(container.image.as_deref().unwrap_or_default()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_tag_is_the_latest() {
        assert_eq!(ImageId::new("a/b"), ImageId::new("a/b:latest"));
        assert_eq!(ImageId::new("r:5000/b"), ImageId::new("r:5000/b:latest"));
        assert_ne!(ImageId::new("a/b:1"), ImageId::new("a/b:latest"));
    }

    #[test]
    fn an_image_is_found_under_each_of_its_names() {
        let image = ContainerImage {
            names: Some(vec!["a:1".to_owned(), "a:2".to_owned()]),
            size_bytes: Some(5),
        };
        let images = Images::read(&[image]);
        let size = |name| images.size(ImageId::new(name));
        assert_eq!(
            (size("a:1"), size("a:2"), size("a")),
            (Some(5), Some(5), None)
        );
    }
}
