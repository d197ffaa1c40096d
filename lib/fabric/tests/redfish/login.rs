//! TLS, sessions, and user name and password with each request.

use std::{fs, path::PathBuf};

use hostler_api::Chain;
use hostler_fabric::{
    FabricProvider,
    redfish::{AuthenticationKind, RedfishProvider, RedfishSettings, RedfishSetupError},
};
use hostler_testing::redfish::PlayedRedfish;
use tempfile::TempDir;

use crate::support::{attach, settings, write_login};

/// A service with this user, and settings with a folder for credentials.
async fn guarded(is_basic: bool) -> (PlayedRedfish, TempDir, RedfishSettings) {
    let service = PlayedRedfish::rack(1, 1).await;
    service.set(|knobs| {
        knobs.login = Some(("admin".to_owned(), "s3cret-word".to_owned()));
        knobs.is_basic = is_basic;
    });
    let folder = tempfile::tempdir().unwrap();
    write_login(folder.path(), "admin", "s3cret-word");
    let authentication = if is_basic { AuthenticationKind::Basic } else { AuthenticationKind::Session };
    let credentials = Some(folder.path().to_owned());
    let settings = RedfishSettings { authentication, credentials, ..settings(&service) };
    (service, folder, settings)
}

#[tokio::test]
async fn a_session_is_made_once_and_again_after_it_has_expired() {
    let (service, _folder, settings) = guarded(false).await;
    let provider = RedfishProvider::new(&settings).unwrap();
    assert!(attach(&provider, "a", 0, 0).await.is_done());
    provider.inventory().await.unwrap();
    assert_eq!(service.logins(), 1);
    // Requests overlap only if each takes a while.
    service.set(|knobs| knobs.slow_reads = std::time::Duration::from_millis(5));
    service.expire_sessions();
    assert_eq!(provider.inventory().await.unwrap().connections.len(), 1);
    assert_eq!(service.logins(), 2);
    service.expire_sessions();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let provider = provider.clone();
        calls.spawn(async move { provider.inventory().await.unwrap().connections.len() });
    }
    assert_eq!(calls.join_all().await, [1; 8]);
    assert_eq!(service.logins(), 3, "calls at once ask for one login");
    service.expire_sessions();
    assert!(provider.detach(&crate::support::key("a")).await.unwrap().is_done());
    provider.log_out().await;
    let ended = service.seen().into_iter().filter(|it| it.method == "DELETE" && it.path.contains("/Sessions/"));
    assert_eq!(ended.count(), 1);
}

#[tokio::test]
async fn credentials_are_read_again_at_each_login_and_never_shown() {
    for is_basic in [false, true] {
        let (service, folder, settings) = guarded(is_basic).await;
        write_login(folder.path(), "admin", "wr0ng-word");
        let provider = RedfishProvider::new(&settings).unwrap();
        let error = provider.inventory().await.unwrap_err();
        let shown = format!("{} {error:?} {provider:?} {settings:?}", Chain(&error));
        assert!(shown.contains("with 401; check user name and password") || shown.contains("with 401 ("), "{shown}");
        for secret in ["wr0ng", "token-", "YWRtaW4", "Basic "] {
            assert!(!shown.contains(secret), "{shown}");
        }
        write_login(folder.path(), "admin", "s3cret-word");
        provider.inventory().await.unwrap();
        let shown = format!("{provider:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("token-") && !shown.contains("YWRtaW4"), "{shown}");
        assert_eq!(service.logins(), u32::from(!is_basic));
    }
}

#[tokio::test]
async fn a_service_without_sessions_says_so() {
    let (service, _folder, settings) = guarded(true).await;
    let settings = RedfishSettings { authentication: AuthenticationKind::Session, ..settings };
    let error = RedfishProvider::new(&settings).unwrap().inventory().await.unwrap_err().to_string();
    assert!(error.contains("with 404") && error.contains("set authentication to \"basic\""), "{error}");
    drop(service);
}

fn authority(folder: &TempDir, pem: &str) -> Option<PathBuf> {
    let file = folder.path().join("ca.pem");
    fs::write(&file, pem).unwrap();
    Some(file)
}

#[tokio::test]
async fn only_the_named_authority_vouches_for_a_service() {
    let (service, other) = (PlayedRedfish::rack_over_tls(1, 1).await, PlayedRedfish::rack_over_tls(1, 1).await);
    let folder = tempfile::tempdir().unwrap();
    let trusted = |pem: &str| RedfishSettings {
        address: service.url(),
        authority: authority(&folder, pem),
        ..RedfishSettings::default()
    };
    let provider = RedfishProvider::new(&trusted(service.authority.as_ref().unwrap())).unwrap();
    assert_eq!(provider.inventory().await.unwrap().devices.len(), 1);
    assert!(attach(&provider, "a", 0, 0).await.is_done());

    let provider = RedfishProvider::new(&trusted(other.authority.as_ref().unwrap())).unwrap();
    let error = provider.inventory().await.unwrap_err();
    let chain = Chain(&error).to_string();
    assert!(chain.contains("failed to connect to https://127.0.0.1:") && chain.contains("certificate"), "{chain}");

    let named = RedfishSettings {
        server_name: Some("elsewhere.example".to_owned()),
        ..trusted(service.authority.as_ref().unwrap())
    };
    assert!(RedfishProvider::new(&named).unwrap().inventory().await.is_err(), "the certificate has another name");
}

#[tokio::test]
async fn settings_and_certificates_that_cannot_be_used_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let of = |authority| RedfishSettings { address: "https://fm".to_owned(), authority, ..RedfishSettings::default() };
    let refusal = |settings: &RedfishSettings| RedfishProvider::new(settings).unwrap_err();
    assert!(matches!(refusal(&of(None)), RedfishSetupError::Settings { .. }));
    assert!(matches!(refusal(&of(Some(folder.path().join("none")))), RedfishSetupError::Authority { .. }));
    let empty = refusal(&of(authority(&folder, "nothing"))).to_string();
    assert!(empty.contains("ca.pem cannot vouch for https://fm:443: there is no certificate in it"), "{empty}");
}
