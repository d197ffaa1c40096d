//! The services on the wire. Written by hand where the others are generated, since answers are bytes already: an answer
//! that is asked for a hundred times a second is not encoded a hundred times.

use std::{
    convert::Infallible,
    marker::PhantomData,
    sync::Arc,
    task::{Context, Poll},
};

use hostler_proto::{
    pod_resources_v1::{
        AllocatableResourcesRequest, GetPodResourcesRequest, ListPodResourcesRequest,
        pod_resources_lister_server::SERVICE_NAME,
    },
    pod_resources_v1alpha1::pod_resources_lister_server::SERVICE_NAME as SERVICE_NAME_V1ALPHA1,
};
use prost::{
    Message,
    bytes::{BufMut, Bytes},
};
use tonic::{
    Request, Response, Status,
    body::Body,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::{Body as HttpBody, BoxFuture, Service, StdError, http},
    server::{Grpc, NamedService, UnaryService},
};

use super::PodResourcesServer;
use crate::metrics::PodResourcesApi;

/// Largest request in bytes; a request names a pod at most.
const REQUEST_BYTES: usize = 4 << 10;

/// `v1.PodResourcesLister`. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ServiceV1(pub(super) Arc<PodResourcesServer>);

/// `v1alpha1.PodResourcesLister`. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ServiceV1Alpha1(pub(super) Arc<PodResourcesServer>);

impl NamedService for ServiceV1 {
    const NAME: &'static str = SERVICE_NAME;
}

impl NamedService for ServiceV1Alpha1 {
    const NAME: &'static str = SERVICE_NAME_V1ALPHA1;
}

type Answering = BoxFuture<http::Response<Body>, Infallible>;

impl<B> Service<http::Request<B>> for ServiceV1
where
    B: HttpBody + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Answering {
        let server = self.0.clone();
        match method(&request) {
            "List" => answer(request, ListCall(server, PodResourcesApi::V1)),
            "Get" => answer(request, GetCall(server)),
            "GetAllocatableResources" => answer(request, AllocatableCall(server)),
            _ => unimplemented(),
        }
    }
}

impl<B> Service<http::Request<B>> for ServiceV1Alpha1
where
    B: HttpBody + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Answering {
        match method(&request) {
            // The request has no field in either version.
            "List" => answer(request, ListCall(self.0.clone(), PodResourcesApi::V1Alpha1)),
            _ => unimplemented(),
        }
    }
}

/// Name of the method: the part of the path behind the name of the service.
fn method<B>(request: &http::Request<B>) -> &str {
    request.uri().path().rsplit('/').next().unwrap_or_default()
}

fn unimplemented() -> Answering {
    Box::pin(async { Ok(Status::unimplemented("there is no such call").into_http()) })
}

fn answer<B, M, C>(request: http::Request<B>, call: C) -> Answering
where
    B: HttpBody + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
    M: Message + Default + 'static,
    C: UnaryService<M, Response = Bytes, Future: Send> + Send + 'static,
{
    Box::pin(async move {
        let mut grpc = Grpc::new(EncodedCodec::<M>(PhantomData)).max_decoding_message_size(REQUEST_BYTES);
        Ok(grpc.unary(call, request).await)
    })
}

struct ListCall(Arc<PodResourcesServer>, PodResourcesApi);
struct GetCall(Arc<PodResourcesServer>);
struct AllocatableCall(Arc<PodResourcesServer>);

impl UnaryService<ListPodResourcesRequest> for ListCall {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, _: Request<ListPodResourcesRequest>) -> Self::Future {
        let (server, api) = (self.0.clone(), self.1);
        Box::pin(async move { server.list(api).await.map(Response::new) })
    }
}

impl UnaryService<GetPodResourcesRequest> for GetCall {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<GetPodResourcesRequest>) -> Self::Future {
        let server = self.0.clone();
        Box::pin(async move { server.get(&request.into_inner()).await.map(Response::new) })
    }
}

impl UnaryService<AllocatableResourcesRequest> for AllocatableCall {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, _: Request<AllocatableResourcesRequest>) -> Self::Future {
        let server = self.0.clone();
        Box::pin(async move { server.allocatable().await.map(Response::new) })
    }
}

/// A codec that decodes requests and passes answers on as they are.
struct EncodedCodec<M>(PhantomData<M>);

struct BytesEncoder;
struct MessageDecoder<M>(PhantomData<M>);

impl<M: Message + Default + 'static> Codec for EncodedCodec<M> {
    type Encode = Bytes;
    type Decode = M;
    type Encoder = BytesEncoder;
    type Decoder = MessageDecoder<M>;

    fn encoder(&mut self) -> BytesEncoder {
        BytesEncoder
    }

    fn decoder(&mut self) -> MessageDecoder<M> {
        MessageDecoder(PhantomData)
    }
}

impl Encoder for BytesEncoder {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, answer: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(answer);
        Ok(())
    }
}

impl<M: Message + Default> Decoder for MessageDecoder<M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        let decoded = M::decode(buffer);
        decoded.map(Some).map_err(|error| Status::internal(format!("the request is no such message: {error}")))
    }
}
