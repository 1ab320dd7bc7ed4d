//! From HTTP requests to the engine's requests and back.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderValue, ALLOW, AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use hyper::{Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde::Serialize;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::json::{
    AddPort, BeginMove, ChangeExecutor, ContinueMove, Markers, Ownership, Port, SendMarkers,
};
use super::shared::Shared;
use super::timing::Timing;
use super::wait::Wait;
use crate::events::{Answer, Problem, Request};

/// Limit of a request's body in bytes.
const BODY_MAX: usize = 64 * 1024;
/// Limit for a client to send the body of its request, after the head.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Answers one request; never fails.
pub async fn respond(shared: &Shared, request: hyper::Request<Incoming>) -> Response<Full<Bytes>> {
    let timing = Timing::begin(request.headers());
    let mut response = answer(shared, request).await;
    if let Some(told) = timing.and_then(Timing::end) {
        response.headers_mut().insert(Timing::HEADER, told);
    }
    response
}

async fn answer(shared: &Shared, request: hyper::Request<Incoming>) -> Response<Full<Bytes>> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    match handle(shared, request).await {
        Ok((status, body)) => {
            // Markers are sent a thousand times a second.
            if path.ends_with("/markers") {
                debug!(target: "api", "{method} {path}: {}", status.as_u16());
            } else if method != Method::GET {
                info!(target: "api", "{method} {path}: {}", status.as_u16());
            }
            let content = match path.as_str() {
                _ if body.is_empty() => None,
                "/metrics" => Some("text/plain; version=0.0.4"),
                _ => Some("application/json"),
            };
            response(status, body, content)
        }
        Err(problem) => {
            warn!(target: "api", "{method} {path}: {} {}: {}", problem.status.as_u16(), problem.code, problem.detail);
            let mut response = response(
                problem.status,
                problem.to_json(),
                Some("application/problem+json"),
            );
            if let Some((name, value)) = problem.header {
                response
                    .headers_mut()
                    .insert(name, HeaderValue::from_static(value));
            }
            response
        }
    }
}

fn response(
    status: StatusCode,
    body: Vec<u8>,
    content: Option<&'static str>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    if let Some(content) = content {
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(content));
    }
    response
}

/// The resources of the contract.
#[derive(Clone, Copy)]
enum Resource {
    Status,
    Metrics,
    Ports,
    Port(u32),
    Owner(u32),
    Executor(u32),
    Move(u32),
    Continue(u32),
    Markers(u32),
    Audit,
    Log,
}

impl Resource {
    fn find(path: &str) -> Result<Self, Problem> {
        if path == "/metrics" {
            return Ok(Self::Metrics); // the path that Prometheus scrapes
        }
        let parts: Vec<_> = path
            .strip_prefix("/v1/")
            .unwrap_or_default()
            .split('/')
            .collect();
        match parts.as_slice() {
            ["status"] => Ok(Self::Status),
            ["log"] => Ok(Self::Log),
            ["audit"] => Ok(Self::Audit),
            ["ports"] => Ok(Self::Ports),
            ["ports", port] => number(port).map(Self::Port),
            ["ports", port, "owner"] => number(port).map(Self::Owner),
            ["ports", port, "executor"] => number(port).map(Self::Executor),
            ["ports", port, "move"] => number(port).map(Self::Move),
            ["ports", port, "move", "continue"] => number(port).map(Self::Continue),
            ["ports", port, "move", "markers"] => number(port).map(Self::Markers),
            _ => Err(Problem::new(
                StatusCode::NOT_FOUND,
                "not-found",
                format!("{path} does not exist; the API starts at /v1/status"),
            )),
        }
    }

    fn methods(self) -> &'static str {
        match self {
            Self::Status | Self::Metrics => "GET",
            Self::Ports => "GET, POST",
            Self::Port(_) => "GET, DELETE",
            Self::Owner(_) => "PUT",
            Self::Move(_) => "POST, DELETE",
            Self::Executor(_) | Self::Continue(_) | Self::Markers(_) | Self::Audit => "POST",
            Self::Log => "GET, PUT",
        }
    }
}

fn number(text: &str) -> Result<u32, Problem> {
    let unknown = || {
        Problem::new(
            StatusCode::NOT_FOUND,
            "port-unknown",
            format!("virtual port \"{text}\" does not exist"),
        )
    };
    text.parse().map_err(|_| unknown())
}

async fn handle(
    shared: &Shared,
    request: hyper::Request<Incoming>,
) -> Result<(StatusCode, Vec<u8>), Problem> {
    authorize(shared, request.headers())?;
    let resource = Resource::find(request.uri().path())?;
    let method = request.method().clone();
    let question = match (&method, resource) {
        (&Method::GET, Resource::Status) => match Wait::of(request.uri().query())? {
            Some(wait) => return Ok(written(wait.ask(shared).await?, resource)),
            None => Request::Status,
        },
        (&Method::GET, Resource::Metrics) => Request::Status,
        (&Method::GET, Resource::Ports) => Request::Ports,
        (&Method::GET, Resource::Port(number)) => Request::Port(number),
        (&Method::DELETE, Resource::Port(number)) => {
            let body: Ownership = read_body(request).await?;
            Request::RemovePort(number, body.try_into()?)
        }
        (&Method::PUT, Resource::Owner(number)) => {
            let body: Ownership = read_body(request).await?;
            Request::GivePort(number, body.try_into()?)
        }
        (&Method::DELETE, Resource::Move(number)) => Request::AbortMove(number),
        (&Method::POST, Resource::Ports) => {
            let body: AddPort = read_body(request).await?;
            Request::AddPort(body.try_into()?)
        }
        (&Method::POST, Resource::Move(number)) => {
            let body: BeginMove = read_body(request).await?;
            Request::Move(number, body.try_into()?)
        }
        (&Method::POST, Resource::Executor(number)) => {
            let body: ChangeExecutor = read_body(request).await?;
            Request::Execute(number, body.try_into()?)
        }
        (&Method::POST, Resource::Continue(number)) => {
            let body: ContinueMove = read_body(request).await?;
            Request::ContinueMove {
                number,
                until: body.until(),
                force: body.force,
            }
        }
        (&Method::POST, Resource::Markers(number)) => {
            let body: SendMarkers = read_body(request).await?;
            Request::SendMarkers(number, body.try_into()?)
        }
        (&Method::POST, Resource::Audit) => Request::Audit,
        (&Method::GET, Resource::Log) => return Ok((StatusCode::OK, json(&shared.levels.shown()))),
        (&Method::PUT, Resource::Log) => {
            let body: BTreeMap<String, String> = read_body(request).await?;
            let changes = body
                .iter()
                .map(|(module, level)| (module.as_str(), level.as_str()));
            shared.levels.set(changes).map_err(Problem::malformed)?;
            return Ok((StatusCode::OK, json(&shared.levels.shown())));
        }
        _ => return Err(not_allowed(&method, resource)),
    };
    Ok(written(shared.ask(question).await?, resource))
}

/// Returns an answer's status and body.
fn written(answer: Answer, resource: Resource) -> (StatusCode, Vec<u8>) {
    match answer {
        Answer::Status(status) if matches!(resource, Resource::Metrics) => {
            (StatusCode::OK, status.metrics().into_bytes())
        }
        Answer::Status(status) => (StatusCode::OK, json(&status)),
        Answer::Ports(ports) => (
            StatusCode::OK,
            json(&ports.iter().map(Port::from).collect::<Vec<_>>()),
        ),
        Answer::Port(port) => (StatusCode::OK, json(&Port::from(&port))),
        Answer::Added(port) => (StatusCode::CREATED, json(&Port::from(&port))),
        Answer::Markers(from) => (StatusCode::OK, json(&Markers { from })),
        Answer::Audit(audits) => (StatusCode::OK, json(&audits)),
        Answer::Nothing => (StatusCode::NO_CONTENT, Vec::new()),
    }
}

fn not_allowed(method: &Method, resource: Resource) -> Problem {
    let methods = resource.methods();
    let detail = format!("{method} is not allowed here; expected {methods}");
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail);
    Problem {
        header: Some((ALLOW, methods)),
        ..problem
    }
}

fn authorize(shared: &Shared, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(token) = &shared.token else {
        return Ok(());
    };
    let shown = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    if shown.is_some_and(|shown| same_secret(shown, token.as_bytes())) {
        return Ok(());
    }
    let detail = "this API requires the header \"Authorization: Bearer TOKEN\" with the token of its api_token_file";
    let problem = Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail);
    Err(Problem {
        header: Some((WWW_AUTHENTICATE, "Bearer")),
        ..problem
    })
}

/// Compares in a time that reveals only the length.
fn same_secret(shown: &[u8], token: &[u8]) -> bool {
    let differences = shown.iter().zip(token).fold(0, |sum, (a, b)| sum | (a ^ b));
    shown.len() == token.len() && differences == 0
}

/// Reads a JSON body; an empty one is `{}`.
async fn read_body<T: DeserializeOwned>(request: hyper::Request<Incoming>) -> Result<T, Problem> {
    if let Some(content) = request.headers().get(CONTENT_TYPE) {
        let essence = content
            .as_bytes()
            .split(|byte| *byte == b';')
            .next()
            .unwrap_or_default()
            .trim_ascii();
        if !essence.eq_ignore_ascii_case(b"application/json") {
            let detail = format!(
                "the body is {}; expected application/json",
                String::from_utf8_lossy(essence)
            );
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported-media-type",
                detail,
            ));
        }
    }
    let reading = Limited::new(request.into_body(), BODY_MAX).collect();
    let body = timeout(BODY_TIMEOUT, reading)
        .await
        .map_err(|_| {
            let detail = format!(
                "the body did not arrive within {} seconds",
                BODY_TIMEOUT.as_secs()
            );
            Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", detail)
        })?
        .map_err(|error| {
            if error.downcast_ref::<LengthLimitError>().is_some() {
                let detail = format!("the body has more than {BODY_MAX} bytes");
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail)
            } else {
                Problem::malformed(format!("the body ended early: {error}"))
            }
        })?;
    let bytes = body.to_bytes();
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    serde_json::from_slice(text).map_err(|error| Problem::malformed(error.to_string()))
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Only maps with non-string keys lack a JSON form; these have none.
    serde_json::to_vec(value).unwrap_or_default()
}
