//! What a request does to the documents, and the answer to it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    PlayedState, RootPath, SeenRequest,
    knobs::{PlayedBody, PlayedWrite},
    login::SESSIONS,
    tree::{self, FABRIC},
};

const TASKS: &str = "/redfish/v1/TaskService/Tasks";

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct PlayedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
}

/// An answer, or none.
#[derive(Clone, Debug)]
pub(crate) enum PlayedAnswer {
    Status { status: u16, headers: Vec<(String, String)>, body: String },
    Body(PlayedBody, String),
    End,
    Hang,
}

fn status(status: u16) -> PlayedAnswer {
    PlayedAnswer::Status { status, headers: Vec::new(), body: format!("<html>status {status}</html>") }
}

fn json_answer(status: u16, body: &Value) -> PlayedAnswer {
    PlayedAnswer::Status { status, headers: Vec::new(), body: body.to_string() }
}

impl PlayedState {
    /// Notes a request, before it takes its time.
    pub(crate) fn note(&mut self, request: &PlayedRequest) {
        self.seen.push(SeenRequest {
            method: request.method.clone(),
            path: request.path.clone(),
            if_match: request.headers.get("if-match").cloned(),
        });
    }

    /// Carries a request out.
    pub(crate) fn carry_out(&mut self, request: &PlayedRequest) -> PlayedAnswer {
        if !self.is_known(&request.path, &request.headers) {
            return status(401);
        }
        if request.method == "GET" {
            return self.read(&request.path);
        }
        if request.path == SESSIONS {
            return self.session(&request.body);
        }
        let fate = self.knobs.writes.pop_front();
        match fate {
            Some(PlayedWrite::Hang) => PlayedAnswer::Hang,
            Some(PlayedWrite::EndBefore) => PlayedAnswer::End,
            Some(PlayedWrite::StatusBefore(code)) => status(code),
            Some(PlayedWrite::EndAfter) => {
                self.write(request);
                PlayedAnswer::End
            }
            Some(PlayedWrite::StatusAfter(code)) => {
                self.write(request);
                status(code)
            }
            Some(PlayedWrite::Task) => self.begin_task(request, true),
            Some(PlayedWrite::TaskInBody) => self.begin_task(request, false),
            None => self.write(request),
        }
    }

    fn session(&mut self, body: &Value) -> PlayedAnswer {
        if self.knobs.is_basic {
            return status(404);
        }
        let Some(token) = self.log_in(body) else { return json_answer(401, body) };
        let headers = vec![("X-Auth-Token".to_owned(), token), ("Location".to_owned(), format!("{SESSIONS}/1"))];
        PlayedAnswer::Status { status: 201, headers, body: "{}".to_owned() }
    }

    fn read(&mut self, path: &str) -> PlayedAnswer {
        if let Some(code) = self.knobs.read_failures.pop_front() {
            return status(code);
        }
        let hidden = match self.knobs.root {
            RootPath::Both => "",
            RootPath::WithSlash => "/redfish/v1",
            RootPath::WithoutSlash => "/redfish/v1/",
        };
        if path == hidden {
            return status(404);
        }
        let plain = path.split('?').next().unwrap_or_default().trim_end_matches('/');
        let Some(document) = self.documents.get(plain) else { return status(404) };
        let shown = if self.knobs.flat_links { tree::flattened(plain, document) } else { document.clone() };
        if plain == "/redfish/v1/Fabrics" && self.knobs.fabrics != PlayedBody::Document {
            return PlayedAnswer::Body(self.knobs.fabrics, shown.to_string());
        }
        // The monitor of work that has not ended is answered like the work itself.
        let code = if self.tasks.contains_key(plain) { 202 } else { 200 };
        let tag = self.knobs.etags.then(|| ("ETag".to_owned(), etag(document)));
        PlayedAnswer::Status { status: code, headers: tag.into_iter().collect(), body: shown.to_string() }
    }

    fn write(&mut self, request: &PlayedRequest) -> PlayedAnswer {
        match request.method.as_str() {
            "POST" => self.create(&request.path, request.body.clone()),
            "PATCH" => self.patch(&request.path, &request.body),
            "DELETE" => self.delete(&request.path, request.headers.get("if-match")),
            _ => status(405),
        }
    }

    fn create(&mut self, collection: &str, mut body: Value) -> PlayedAnswer {
        let own = self.knobs.own_ids.then(|| (self.seen.len() + 100).to_string());
        let Some(id) = own.or_else(|| body["Id"].as_str().map(str::to_owned)) else { return status(400) };
        let path = format!("{collection}/{id}");
        if self.documents.contains_key(&path) {
            return status(409);
        }
        body["Id"] = json!(id);
        body["@odata.id"] = json!(path);
        self.spoil(collection, &mut body);
        self.documents.insert(path.clone(), body.clone());
        tree::list(&mut self.documents, &path);
        if collection.starts_with(FABRIC)
            && let Some(fabric) = self.documents.get_mut(FABRIC)
        {
            fabric["Connections"] = json!({"@odata.id": format!("{FABRIC}/Connections")});
        }
        if is_chunk(&path) && !self.knobs.no_back_links {
            tree::link_back(&mut self.documents, &path, true);
        }
        if self.knobs.location {
            let headers = vec![("Location".to_owned(), path)];
            return PlayedAnswer::Status { status: 201, headers, body: String::new() };
        }
        json_answer(200, &body)
    }

    /// Makes of a new object what the knobs make of it.
    fn spoil(&self, collection: &str, body: &mut Value) {
        let is_connection = collection.starts_with(FABRIC);
        if let Some(target) = self.knobs.wrong_target.as_ref().filter(|_| is_connection) {
            body["Links"]["TargetEndpoints"] = json!([{"@odata.id": target}]);
            body.as_object_mut().expect("an object").remove("MemoryChunkInfo");
        }
        if is_connection {
            return;
        }
        if let Some(size) = self.knobs.chunk_mib {
            body["MemoryChunkSizeMiB"] = json!(size);
        }
        if self.knobs.drops_names {
            body["Name"] = json!("Memory Chunk");
        }
        if self.knobs.drops_devices {
            body["Links"] = json!({});
        }
    }

    fn patch(&mut self, path: &str, body: &Value) -> PlayedAnswer {
        let (Some(document), Some(fields)) = (self.documents.get_mut(path), body.as_object()) else {
            return status(404);
        };
        for (name, value) in fields {
            document[name] = value.clone();
        }
        json_answer(200, &document.clone())
    }

    fn delete(&mut self, path: &str, if_match: Option<&String>) -> PlayedAnswer {
        let Some(document) = self.documents.get(path) else { return status(404) };
        if self.knobs.etags && if_match != Some(&etag(document)) {
            return status(412);
        }
        if !self.knobs.zombies {
            if is_chunk(path) && !self.knobs.no_back_links {
                tree::link_back(&mut self.documents, path, false);
            }
            tree::remove(&mut self.documents, path);
        }
        PlayedAnswer::Status { status: 204, headers: Vec::new(), body: String::new() }
    }

    fn begin_task(&mut self, request: &PlayedRequest, in_header: bool) -> PlayedAnswer {
        let path = format!("{TASKS}/{}", self.seen.len());
        let task = json!({"@odata.id": path, "Id": "1", "TaskState": "Running", "PercentComplete": 40,
            "Payload": {"TargetUri": request.path, "JsonBody": request.body.to_string()}});
        self.documents.insert(path.clone(), task.clone());
        tree::list(&mut self.documents, &path);
        self.documents.insert(
            "/redfish/v1/TaskService".to_owned(),
            json!({"@odata.id": "/redfish/v1/TaskService", "Tasks": {"@odata.id": TASKS}}),
        );
        if let Some(root) = self.documents.get_mut("/redfish/v1") {
            root["Tasks"] = json!({"@odata.id": "/redfish/v1/TaskService"});
        }
        self.tasks.insert(path.clone(), (request.method.clone(), request.path.clone(), request.body.clone()));
        let headers = if in_header { vec![("Location".to_owned(), path)] } else { Vec::new() };
        let body = if in_header { String::new() } else { task.to_string() };
        PlayedAnswer::Status { status: 202, headers, body }
    }

    /// Ends all tasks in a state. Only `Completed` does the work.
    pub(crate) fn finish_tasks(&mut self, state: &str) {
        for (task, (method, path, body)) in std::mem::take(&mut self.tasks) {
            if state == "Completed" {
                self.write(&PlayedRequest { method, path, headers: BTreeMap::new(), body });
            }
            if let Some(document) = self.documents.get_mut(&task) {
                document["TaskState"] = json!(state);
                document["Messages"] = json!([{"Message": "the link did not train"}]);
            }
        }
    }
}

fn is_chunk(path: &str) -> bool {
    path.contains("/MemoryChunks/")
}

/// A tag that follows from the document.
fn etag(document: &Value) -> String {
    format!("\"{:08x}\"", crc32fast::hash(document.to_string().as_bytes()))
}
