//! Reads the cluster for questions about pods, as far as the user may.

use hostler_cluster::ApiFailure;

use super::world::WhyWorld;
use crate::{
    cluster_args::ClusterArgs,
    plan::{ClusterReadError, InputText, LiveCluster, QuestionError},
};

/// Reads everything that explains the pods of a namespace, or of all.
pub(super) async fn read(access: &ClusterArgs, namespace: Option<&str>) -> Result<WhyWorld, QuestionError> {
    let mut world = WhyWorld::default();
    let mut pages: Vec<InputText> = Vec::new();
    let mut each = |page| pages.push(page);
    match LiveCluster::connect(access).await {
        Ok(cluster) => {
            world.has_claims = true;
            world.forbidden = cluster.read_for_pods(namespace, &mut each).await?;
            world.minor = cluster.minor_release().await.ok();
        }
        Err(ClusterReadError::Call(failure)) if matches!(*failure, ApiFailure::NoResourceApi) => {
            world.minor = LiveCluster::read_pods_alone(access, namespace, &mut each).await?;
            world.forbidden = vec!["resourceslices"];
        }
        Err(error) => return Err(error.into()),
    }
    pages.iter().try_for_each(|page| world.take(page)).map_err(QuestionError::Object)?;
    world.forgive_attachments();
    Ok(world)
}
