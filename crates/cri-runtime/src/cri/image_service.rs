//! The image service of the CRI.

use podresources::cri::v1 as cri;
use podresources::cri::v1::image_service_server::ImageService;
use tonic::{Request, Response, Status};

use super::{Cri, convert};
use crate::runtime::now;

#[tonic::async_trait]
impl ImageService for Cri {
    async fn list_images(
        &self,
        request: Request<cri::ListImagesRequest>,
    ) -> Result<Response<cri::ListImagesResponse>, Status> {
        let wanted = request
            .into_inner()
            .filter
            .and_then(|filter| filter.image)
            .map(|image| image.image)
            .filter(|image| !image.is_empty());
        let images = match wanted {
            None => self
                .runtime
                .images
                .all()
                .map(|image| convert::image(&image))
                .collect(),
            Some(name) => self
                .runtime
                .images
                .resolve(&name)
                .iter()
                .map(convert::image)
                .collect(),
        };
        Ok(Response::new(cri::ListImagesResponse { images }))
    }

    async fn image_status(
        &self,
        request: Request<cri::ImageStatusRequest>,
    ) -> Result<Response<cri::ImageStatusResponse>, Status> {
        let name = image_name(request.into_inner().image)?;
        // A missing image yields an empty answer, not an error.
        let image = self.runtime.images.resolve(&name).ok();
        Ok(Response::new(cri::ImageStatusResponse {
            image: image.map(|image| convert::image(&image)),
            ..Default::default()
        }))
    }

    async fn pull_image(
        &self,
        request: Request<cri::PullImageRequest>,
    ) -> Result<Response<cri::PullImageResponse>, Status> {
        let name = image_name(request.into_inner().image)?;
        match self.runtime.images.resolve(&name) {
            Ok(image) => Ok(Response::new(cri::PullImageResponse {
                image_ref: image.id,
            })),
            Err(error) => Err(Status::not_found(error.to_string())),
        }
    }

    async fn remove_image(
        &self,
        _request: Request<cri::RemoveImageRequest>,
    ) -> Result<Response<cri::RemoveImageResponse>, Status> {
        // The images belong to the node's specification and stay. They are pinned, so the kubelet does not ask to remove them.
        Ok(Response::new(cri::RemoveImageResponse {}))
    }

    async fn image_fs_info(
        &self,
        _request: Request<cri::ImageFsInfoRequest>,
    ) -> Result<Response<cri::ImageFsInfoResponse>, Status> {
        let usage = cri::FilesystemUsage {
            timestamp: now(),
            fs_id: Some(cri::FilesystemIdentifier {
                mountpoint: self.runtime.spec.state_dir.display().to_string(),
            }),
            used_bytes: Some(cri::UInt64Value { value: 0 }),
            inodes_used: Some(cri::UInt64Value { value: 0 }),
        };
        Ok(Response::new(cri::ImageFsInfoResponse {
            image_filesystems: vec![usage.clone()],
            container_filesystems: vec![usage],
        }))
    }
}

fn image_name(image: Option<cri::ImageSpec>) -> Result<String, Status> {
    image
        .map(|image| image.image)
        .filter(|image| !image.is_empty())
        .ok_or_else(|| Status::invalid_argument("no image specified"))
}
