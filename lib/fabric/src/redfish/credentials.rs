//! User name and password of a service. They are read at each login, and are in no debug output.

use std::{fmt, path::Path};

use hostler_files::{FileError, read_text};

use super::RedfishError;

/// A user name and a password have less.
const MOST_BYTES: u64 = 64 << 10;

/// A user name and a password.
pub(super) struct Login {
    pub(super) username: String,
    pub(super) password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

/// Reads a folder with the files `username` and `password`, or a file with a line for each.
pub(super) fn read_login(service: &str, path: &Path) -> Result<Login, RedfishError> {
    let failed = |source: FileError| RedfishError::Credentials { service: service.to_owned(), source };
    if path.is_dir() {
        let part = |name: &'static str| {
            let file = path.join(name);
            let text = read_text(&file, MOST_BYTES).map_err(failed)?;
            // Editors end a file with a newline; a password with one at its end cannot be typed anywhere.
            let text = text.trim_end_matches(['\n', '\r']).to_owned();
            given(service, name, &file, Some(text))
        };
        return Ok(Login { username: part("username")?, password: part("password")? });
    }
    let text = read_text(path, MOST_BYTES).map_err(failed)?;
    let part = |name: &'static str| given(service, name, path, line_of(&text, name));
    Ok(Login { username: part("username")?, password: part("password")? })
}

fn given(service: &str, part: &'static str, file: &Path, text: Option<String>) -> Result<String, RedfishError> {
    text.filter(|text| !text.is_empty()).ok_or_else(|| RedfishError::NoCredentials {
        service: service.to_owned(),
        part,
        file: file.display().to_string(),
    })
}

/// The value of a line `name: value`.
fn line_of(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_login_comes_from_a_folder_or_a_file() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("username"), "root\n").unwrap();
        let error = read_login("fm", temp.path()).unwrap_err();
        assert_eq!(error.to_string(), "failed to read the credentials for fm");
        fs::write(temp.path().join("password"), "\n").unwrap();
        assert!(read_login("fm", temp.path()).unwrap_err().to_string().contains("have no password; write it into"));
        fs::write(temp.path().join("password"), "a: b\n").unwrap();
        let login = read_login("fm", temp.path()).unwrap();
        assert_eq!((login.username.as_str(), login.password.as_str()), ("root", "a: b"));
        assert_eq!(format!("{login:?}"), "Login");

        let file = temp.path().join("file");
        fs::write(&file, "username: admin\npassword: p:w\n").unwrap();
        let login = read_login("fm", &file).unwrap();
        assert_eq!((login.username.as_str(), login.password.as_str()), ("admin", "p:w"));
    }
}
