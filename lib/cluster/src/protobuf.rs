//! Objects in the API server's binary form, taken apart only as far as they are read. JSON would not do for an object
//! that goes back: the server writes opaque parts in another way than it stores them (without spaces, `<` as `\u003c`),
//! and takes the other spelling for a change.

use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType, bytes, decode_key, decode_varint, skip_field, string},
};

use crate::failure::{Status, StatusCause, StatusDetails};

/// How the form is called in headers.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The first bytes of the form.
const MAGIC: &[u8] = b"k8s\0";

/// The object's own message, in the envelope that says of which kind it is.
const MESSAGE: u32 = 2;

/// Of an object's message: what every object has.
const METADATA: u32 = 1;
/// Of that: the version of the object, and who keeps it from being deleted.
const RESOURCE_VERSION: u32 = 6;
const FINALIZERS: u32 = 14;

/// One field of a message.
#[derive(Clone, Copy, Debug)]
pub struct ProtobufField<'a> {
    /// Number in the message's definition.
    pub number: u32,
    /// All of it, as it stands in the message.
    pub whole: &'a [u8],
    /// Content: a text, bytes, or another message; nothing of a number.
    pub content: &'a [u8],
}

/// The fields of a message, in their order.
///
/// # Errors
/// When it is none.
pub fn protobuf_fields(message: &[u8]) -> Result<Vec<ProtobufField<'_>>, DecodeError> {
    let (mut rest, mut fields) = (message, Vec::new());
    while !rest.is_empty() {
        let start = rest;
        let (number, wire_type) = decode_key(&mut rest)?;
        let mut content = rest;
        skip_field(wire_type, number, &mut rest, DecodeContext::default())?;
        content = &content[..content.len() - rest.len()];
        if wire_type == WireType::LengthDelimited {
            decode_varint(&mut content)?;
        } else {
            content = &[];
        }
        fields.push(ProtobufField { number, whole: &start[..start.len() - rest.len()], content });
    }
    Ok(fields)
}

/// Why what the server sent is no object.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProtobufObjectError {
    /// The answer has another form than the one that was asked for: a proxy's page, for example.
    #[error("the answer is not in the binary form ({MEDIA_TYPE})")]
    OtherForm,
    /// A message in it is none.
    #[error(transparent)]
    Message(#[from] DecodeError),
}

/// An object, with its message to be read and replaced.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProtobufObject {
    /// The rest of the envelope.
    envelope: Vec<u8>,
    /// The object's message.
    pub message: Vec<u8>,
}

impl ProtobufObject {
    /// Reads an object that the server sent.
    pub(crate) fn decode(sent: &[u8]) -> Result<Self, ProtobufObjectError> {
        let (mut envelope, mut message) = (Vec::new(), Vec::new());
        for field in protobuf_fields(sent.strip_prefix(MAGIC).ok_or(ProtobufObjectError::OtherForm)?)? {
            match field.number {
                MESSAGE => message = field.content.to_vec(),
                _ => envelope.extend_from_slice(field.whole),
            }
        }
        Ok(Self { envelope, message })
    }

    /// The same object with another message.
    #[must_use]
    pub fn with_message(&self, message: Vec<u8>) -> Self {
        Self { envelope: self.envelope.clone(), message }
    }

    /// The same object with these finalizers and no others, as a change of this version of it.
    ///
    /// # Errors
    /// When it is no object.
    pub(crate) fn with_finalizers(&self, version: &str, finalizers: &[String]) -> Result<Self, DecodeError> {
        let mut message = Vec::new();
        for field in protobuf_fields(&self.message)? {
            match field.number {
                METADATA => bytes::encode(METADATA, &kept_by(field.content, version, finalizers)?, &mut message),
                _ => message.extend_from_slice(field.whole),
            }
        }
        Ok(self.with_message(message))
    }

    /// To be sent.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut sent = [MAGIC, &self.envelope].concat();
        bytes::encode(MESSAGE, &self.message, &mut sent);
        sent
    }
}

fn kept_by(metadata: &[u8], version: &str, finalizers: &[String]) -> Result<Vec<u8>, DecodeError> {
    let fields = protobuf_fields(metadata)?;
    let others = fields.iter().filter(|field| ![RESOURCE_VERSION, FINALIZERS].contains(&field.number));
    let mut metadata: Vec<u8> = others.flat_map(|field| field.whole).copied().collect();
    string::encode(RESOURCE_VERSION, &version.to_owned(), &mut metadata);
    string::encode_repeated(FINALIZERS, finalizers, &mut metadata);
    Ok(metadata)
}

/// Reads a refusal in this form: the server answers in the form that was asked for.
pub(crate) fn refusal(body: &[u8]) -> Option<Status> {
    if !body.starts_with(MAGIC) {
        return None;
    }
    let said = StatusMessage::decode(&*ProtobufObject::decode(body).ok()?.message).ok()?;
    let details = said.details.map(|details| StatusDetails {
        name: details.name,
        retry_after_seconds: details.retry_after_seconds.max(0).cast_unsigned(),
        causes: details.causes.into_iter().map(StatusCause::from).collect(),
    });
    Some(Status { code: 0, message: said.message, details })
}

#[derive(Clone, PartialEq, Message)]
struct StatusMessage {
    #[prost(string, tag = "3")]
    message: String,
    #[prost(message, optional, tag = "5")]
    details: Option<StatusDetailsMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct StatusDetailsMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "4")]
    causes: Vec<StatusCauseMessage>,
    #[prost(int32, tag = "5")]
    retry_after_seconds: i32,
}

#[derive(Clone, PartialEq, Message)]
struct StatusCauseMessage {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    message: String,
}

impl From<StatusCauseMessage> for StatusCause {
    fn from(StatusCauseMessage { reason, message }: StatusCauseMessage) -> Self {
        Self { reason, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_looks_into_goes_back_byte_by_byte() {
        // An envelope with a type (1), a message (2) and a field of tomorrow (9, a number).
        let sent = b"k8s\0\x0a\x04\x0a\x02v1\x48\x96\x01\x12\x03\x0a\x01x";
        let object = ProtobufObject::decode(sent).unwrap();
        assert_eq!(object.message, b"\x0a\x01x");
        assert_eq!(object.encode(), sent);
        let fields = protobuf_fields(&sent[4..]).unwrap();
        let seen: Vec<_> = fields.iter().map(|field| (field.number, field.content)).collect();
        assert_eq!(seen, [(1, b"\x0a\x02v1".as_slice()), (9, b""), (2, b"\x0a\x01x")]);
    }

    #[test]
    fn finalizers_and_the_version_are_changed_and_nothing_else() {
        // A name (1), a version (6), finalizers (14), and a label behind them (11); then a specification (2).
        let metadata = b"\x0a\x01n\x32\x012\x72\x01a\x72\x01b\x5a\x01l";
        let message = [b"\x0a\x0f".as_slice(), metadata, b"\x12\x03{ }"].concat();
        let object = ProtobufObject { envelope: b"\x0a\x04\x0a\x02v1".to_vec(), message };
        let changed = object.with_finalizers("3", &["b".to_owned(), "c".to_owned()]).unwrap();
        assert_eq!(changed.envelope, object.envelope);
        let expected = b"\x0a\x0f\x0a\x01n\x5a\x01l\x32\x013\x72\x01b\x72\x01c\x12\x03{ }";
        assert_eq!(changed.message, expected);
    }

    #[test]
    fn a_message_that_is_cut_short_is_none() {
        for end in [1, 2, 4] {
            protobuf_fields(&b"\x0a\x04\x0a\x02v1"[..end]).unwrap_err();
        }
    }

    #[test]
    fn an_answer_in_another_form_is_no_object() {
        for sent in [&b""[..], b"k8s", b"{\"kind\":\"ResourceClaim\"}", b"<html>"] {
            assert!(matches!(ProtobufObject::decode(sent), Err(ProtobufObjectError::OtherForm)), "{sent:?}");
        }
    }

    #[test]
    fn a_refusal_is_read_in_this_form_too() {
        let cause =
            StatusCauseMessage { reason: "FieldValueForbidden".to_owned(), message: "it is another's".to_owned() };
        let details = StatusDetailsMessage { name: "train".to_owned(), causes: vec![cause], retry_after_seconds: 3 };
        let status = StatusMessage { message: "not found".to_owned(), details: Some(details) };
        let sent = ProtobufObject { envelope: Vec::new(), message: status.encode_to_vec() }.encode();
        let said = refusal(&sent).unwrap();
        let details = said.details.unwrap();
        assert_eq!((&*said.message, details.retry_after_seconds), ("not found", 3));
        assert_eq!(
            (&*details.causes[0].reason, &*details.causes[0].message),
            ("FieldValueForbidden", "it is another's")
        );
        assert_eq!(refusal(b"{}").map(|said| said.message), None);
    }
}
