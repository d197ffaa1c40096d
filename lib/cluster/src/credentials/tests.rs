//! Kubeconfigs as people and tools write them.

use super::*;

struct KubeconfigFolder {
    temp: tempfile::TempDir,
    authority: String,
    key: String,
}

impl KubeconfigFolder {
    fn new() -> Self {
        let authority = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let temp = tempfile::tempdir().unwrap();
        let (authority, key) = (authority.cert.pem(), authority.signing_key.serialize_pem());
        fs::write(temp.path().join("ca.pem"), &authority).unwrap();
        fs::write(temp.path().join("key.pem"), &key).unwrap();
        Self { temp, authority, key }
    }

    fn find(&self, cluster: &str, user: &str) -> Result<Credentials, CredentialsError> {
        let path = self.temp.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {{cluster: k, user: u}}\n\
             clusters:\n- name: k\n  cluster: {cluster}\nusers:\n- name: u\n  user: {user}\n"
        );
        fs::write(&path, text).unwrap();
        Credentials::find(&Some(&*path).into())
    }

    fn refusal(&self, cluster: &str, user: &str) -> String {
        self.find(cluster, user).unwrap_err().to_string()
    }
}

const CLUSTER: &str = "{server: 'https://localhost:6443', certificate-authority: ca.pem}";

#[test]
fn files_are_found_beside_the_kubeconfig() {
    let place = KubeconfigFolder::new();
    fs::write(place.temp.path().join("token"), "secret\n").unwrap();
    let found = place.find(CLUSTER, "{tokenFile: token}").unwrap();
    assert_eq!(found.server, "https://localhost:6443");
    assert_eq!(found.token.unwrap().header().unwrap(), "Bearer secret");
}

#[test]
fn certificates_may_stand_in_the_kubeconfig_itself() {
    use base64::{Engine, engine::general_purpose::STANDARD};

    let place = KubeconfigFolder::new();
    let [authority, key] = [&place.authority, &place.key].map(|pem| STANDARD.encode(pem));
    let cluster = format!(
        "{{server: 'https://localhost', certificate-authority-data: {authority}, tls-server-name: api.internal}}"
    );
    let user = format!("{{client-certificate-data: {authority}, client-key-data: {key}}}");
    let found = place.find(&cluster, &user).unwrap();
    assert!(found.tls.client_auth_cert_resolver.has_certs() && found.token.is_none());
    assert_eq!(found.server_name.as_deref(), Some("api.internal"));
}

#[test]
fn a_token_is_read_again_and_the_last_one_serves_while_the_file_is_away() {
    let place = KubeconfigFolder::new();
    let path = place.temp.path().join("token");
    fs::write(&path, "one").unwrap();
    let token = BearerToken::of_file(path.clone());
    assert_eq!(token.header().unwrap(), "Bearer one");
    fs::write(&path, "two").unwrap();
    let TokenSource::File(_, last) = &*token.0 else { panic!("it is of a file") };
    let expire = || last.lock().unwrap().as_mut().unwrap().0 -= TOKEN_AGE;
    assert_eq!(token.header().unwrap(), "Bearer one", "not with every request");
    expire();
    assert_eq!(token.header().unwrap(), "Bearer two");
    fs::remove_file(&path).unwrap();
    expire();
    assert_eq!(token.header().unwrap(), "Bearer two");
}

#[test]
fn what_a_privileged_daemon_does_not_do_is_refused_by_name() {
    let place = KubeconfigFolder::new();
    for (user, field) in [
        ("{exec: {command: aws, apiVersion: v1}}", "users[].user.exec: hostler starts no programs"),
        ("{auth-provider: {name: gcp}}", "users[].user.auth-provider"),
        ("{username: admin, password: x}", "users[].user.username"),
        ("{as: root}", "users[].user.as"),
    ] {
        let refusal = place.refusal(CLUSTER, user);
        assert!(refusal.contains(field) && refusal.contains("tokenFile"), "{refusal}");
    }
    let cluster = "{server: 'https://localhost', insecure-skip-tls-verify: true}";
    assert!(place.refusal(cluster, "{}").contains("insecure-skip-tls-verify: the server must be checked"));
}

#[test]
fn the_program_of_a_kubeconfig_is_started_by_the_function_of_the_caller_alone() {
    let place = KubeconfigFolder::new();
    let user = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: bin/login, args: null, provideClusterInfo: true}}";
    assert!(place.refusal(CLUSTER, user).contains("hostler starts no programs"));
    let run = |program: &ExecProgram, question: &str| {
        assert!(program.command.is_absolute() && program.command.ends_with("bin/login"), "{program:?}");
        assert!(
            question.contains("https://localhost:6443") && question.contains("client.authentication"),
            "{question}"
        );
        Ok(br#"{"status":{"token":"given","expirationTimestamp":"1970-01-01T00:00:00Z"}}"#.to_vec())
    };
    let path = place.temp.path().join("kubeconfig");
    let source = CredentialsSource { kubeconfig: Some(path), exec: Some(run), ..CredentialsSource::default() };
    let found = Credentials::find(&source).unwrap();
    assert_eq!(found.token.as_ref().unwrap().header().unwrap(), "Bearer given");
    assert!(found.are_outdated(), "what it gave is over");
}

#[test]
fn the_namespace_is_that_of_the_context() {
    let place = KubeconfigFolder::new();
    let path = place.temp.path().join("kubeconfig");
    let text = "current-context: a\ncontexts:\n- {name: a, context: {cluster: k, user: u, namespace: ml}}\n\
        - {name: b, context: {cluster: k, user: u}}\n";
    fs::write(&path, text).unwrap();
    let of = |context: Option<&str>| {
        let context = context.map(str::to_owned);
        CredentialsSource { kubeconfig: Some(path.clone()), context, ..CredentialsSource::default() }.namespace()
    };
    assert_eq!(of(None).unwrap().as_deref(), Some("ml"));
    assert_eq!(of(Some("b")).unwrap(), None);
    assert!(of(Some("c")).unwrap_err().to_string().contains("there are a, b"));
}

#[test]
fn mistakes_name_the_file_and_the_field() {
    let place = KubeconfigFolder::new();
    for (cluster, user, expected) in [
        ("{server: 'https://localhost'}", "{}", "certificate-authority: it is missing"),
        ("{server: 'https://localhost', certificate-authority-data: '!'}", "{}", "-data: it is not base64"),
        ("{server: 'https://localhost', certificate-authority: kubeconfig}", "{}", "there is no certificate in it"),
        ("{server: 'https://localhost', certificate-authority: absent}", "{}", "failed to read"),
        ("{server: 'https://', certificate-authority: ca.pem}", "{}", "is no address"),
        (CLUSTER, "{client-certificate: ca.pem}", "a certificate needs its key"),
        (CLUSTER, "{token: \"a\\nb\"}", "users[].user.token: it is no token"),
        (CLUSTER, "{token: [a]}", "users[0].user.token"),
        ("{certificate-authority: ca.pem}", "{}", "clusters[0].cluster: missing field `server`"),
    ] {
        let refusal = place.refusal(cluster, user);
        assert!(refusal.contains(expected), "{expected}: {refusal}");
        assert!(refusal.contains(place.temp.path().to_str().unwrap()), "{refusal}");
    }
}

#[test]
fn names_that_lead_nowhere_are_told() {
    let place = KubeconfigFolder::new();
    let path = place.temp.path().join("other");
    fs::write(&path, "current-context: here\ncontexts: []\n").unwrap();
    let refusal = Credentials::find(&Some(&*path).into()).unwrap_err().to_string();
    assert!(refusal.contains("there is none with the name \"here\""), "{refusal}");
    fs::write(&path, "a: [").unwrap();
    let refusal = Credentials::find(&Some(&*path).into()).unwrap_err().to_string();
    assert!(refusal.contains("is not valid YAML"), "{refusal}");
}

#[test]
fn a_server_a_token_and_an_authority_of_the_caller_go_before_those_of_the_kubeconfig() {
    let place = KubeconfigFolder::new();
    let user = "{client-certificate: ca.pem, client-key: key.pem, exec: {command: aws, apiVersion: v1}}";
    assert!(place.refusal(CLUSTER, user).contains("hostler starts no programs"));
    let source = CredentialsSource {
        kubeconfig: Some(place.temp.path().join("kubeconfig")),
        server: Some("https://other:6443".to_owned()),
        token: Some("mine".parse().unwrap()),
        ..CredentialsSource::default()
    };
    let found = Credentials::find(&source).unwrap();
    assert_eq!((found.server.to_string(), &found.server_name), ("https://other:6443/".to_owned(), &None));
    assert_eq!(found.token.unwrap().header().unwrap(), "Bearer mine");
    assert!(!found.tls.client_auth_cert_resolver.has_certs(), "a certificate would count for more than the token");
    let absent = CredentialsSource { authority: Some(place.temp.path().join("absent.pem")), ..source.clone() };
    assert!(Credentials::find(&absent).unwrap_err().to_string().contains("absent.pem"));
    let alone = CredentialsSource { kubeconfig: None, ..source };
    let told = Credentials::find(&alone).unwrap_err().to_string();
    assert!(told.contains("https://other:6443: nothing vouches for it; name the file"), "{told}");
    let vouched = CredentialsSource { authority: Some(place.temp.path().join("ca.pem")), ..alone };
    assert_eq!(Credentials::find(&vouched).unwrap().server.host(), Some("other"));
}

#[test]
fn a_token_is_seen_in_no_debug_output_and_an_empty_one_is_none() {
    let token: BearerToken = "secret".parse().unwrap();
    assert!(!format!("{token:?}").contains("secret"), "{token:?}");
    assert_eq!(" ".parse::<BearerToken>().unwrap_err(), "it is no token");
    let place = KubeconfigFolder::new();
    assert!(place.find(CLUSTER, "{token: ''}").unwrap().token.is_none());
}

#[test]
fn a_pod_without_a_service_account_is_none() {
    let place = KubeconfigFolder::new();
    assert!(matches!(of_pod(place.temp.path()), Err(CredentialsError::NoPod)));
}

#[test]
fn a_certificate_that_is_replaced_makes_the_credentials_outdated_and_one_that_is_away_does_not() {
    let place = KubeconfigFolder::new();
    let user = "{client-certificate: client.pem, client-key: key.pem}";
    let path = place.temp.path().join("client.pem");
    fs::write(&path, &place.authority).unwrap();
    let found = place.find(CLUSTER, user).unwrap();
    assert!(!found.are_outdated());
    fs::remove_file(&path).unwrap();
    assert!(!found.are_outdated(), "it is about to be replaced");
    fs::write(&path, format!("{}\n", place.authority)).unwrap();
    assert!(found.are_outdated());
    let found = place.find(CLUSTER, user).unwrap();
    assert!(!found.are_outdated());
    fs::write(place.temp.path().join("kubeconfig"), "").unwrap();
    assert!(found.are_outdated(), "the kubeconfig itself counts, too");
}
