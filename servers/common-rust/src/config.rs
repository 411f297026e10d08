//! The configuration, from the environment.

use std::env;
use std::fmt::Display;
use std::fs;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

const DEFAULT_POOL_SIZE: usize = 50;
const POOL_SIZES: RangeInclusive<usize> = 1..=10_000;

/// What the environment says.
#[derive(Debug)]
pub struct Config {
    /// `ADDR`: where to listen.
    pub address: SocketAddr,
    /// `LAB_NONCE`: the text that `GET /health` returns.
    pub nonce: String,
    /// `DATABASE_URL_FILE` or `DATABASE_URL`, and `DB_POOL_SIZE`: without a URL there is no database.
    pub database: Option<Database>,
}

/// A database, and the number of connections to open to it.
#[derive(Debug)]
pub struct Database {
    pub connection: tokio_postgres::Config,
    pub pool_size: usize,
}

impl Config {
    /// Reads the environment, or returns a sentence that says which variable is wrong.
    pub fn from_env() -> Result<Self, String> {
        Self::from_variables(|name| env::var_os(name)?.into_string().ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let address = variable("ADDR").unwrap_or_default();
        let address = address.parse().map_err(|_| {
            format!("ADDR must be IP:PORT, such as 127.0.0.1:8080, but it is {address:?}.")
        })?;
        let pool_size = match variable("DB_POOL_SIZE") {
            Some(given) => read_pool_size(&given)?,
            None => DEFAULT_POOL_SIZE,
        };
        let url = match variable("DATABASE_URL_FILE") {
            Some(path) => Some(read_url_file(&path)?),
            None => variable("DATABASE_URL"),
        };
        let database = match url {
            Some(url) => Some(Database { connection: read_database_url(&url)?, pool_size }),
            None => None,
        };
        Ok(Self { address, nonce: variable("LAB_NONCE").unwrap_or_default(), database })
    }
}

fn read_pool_size(given: &str) -> Result<usize, String> {
    given.parse().ok().filter(|size| POOL_SIZES.contains(size)).ok_or_else(|| {
        format!("DB_POOL_SIZE must be a whole number from 1 to 10000, but it is {given:?}.")
    })
}

// Anybody who may use the container engine can read the environment, but only the owner can read
// the file.
fn read_url_file(path: &str) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|error| {
        format!(
            "DATABASE_URL_FILE must be a file that holds the URL, but {path:?} is not: {error}."
        )
    })?;
    Ok(text.trim_end().to_owned())
}

// The sentences do not quote the URL, because it holds a password.
fn read_database_url(url: &str) -> Result<tokio_postgres::Config, String> {
    let wrong = |what: &dyn Display| {
        format!(
            "DATABASE_URL must be postgres://USER:PASSWORD@HOST:PORT/NAME, but it is not: {what}."
        )
    };
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(wrong(&"it does not begin with postgres://"));
    }
    let connection: tokio_postgres::Config =
        url.parse().map_err(|_| wrong(&"it cannot be read as a URL"))?;
    if connection.get_hosts().is_empty() {
        return Err(wrong(&"it has no host"));
    }
    if connection.get_user().is_none() || connection.get_dbname().is_none() {
        return Err(wrong(&"it has no user or no name of a database"));
    }
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "postgres://lab:secret@127.0.0.1:5432/lab";

    fn config(variables: &[(&str, &str)]) -> Result<Config, String> {
        Config::from_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn pool_size(given: &str) -> Result<usize, String> {
        let variables = [("ADDR", "[::1]:80"), ("DATABASE_URL", URL), ("DB_POOL_SIZE", given)];
        config(&variables).map(|config| config.database.unwrap().pool_size)
    }

    #[test]
    fn address_is_ip_and_port() {
        assert_eq!(config(&[("ADDR", "127.0.0.1:80")]).unwrap().address.port(), 80);
        for wrong in ["", "localhost:80", "127.0.0.1", ":80", "127.0.0.1:65536"] {
            assert!(config(&[("ADDR", wrong)]).unwrap_err().starts_with("ADDR "));
        }
        assert!(config(&[]).unwrap_err().starts_with("ADDR "));
    }

    #[test]
    fn the_rest_is_optional() {
        let config = config(&[("ADDR", "127.0.0.1:80")]).unwrap();
        assert_eq!(config.nonce, "");
        assert!(config.database.is_none());
    }

    #[test]
    fn pool_has_1_to_10000_connections() {
        assert_eq!(pool_size("1"), Ok(1));
        assert_eq!(pool_size("10000"), Ok(10_000));
        for wrong in ["", "0", "10001", "-1", "5.0", "many"] {
            assert!(pool_size(wrong).unwrap_err().starts_with("DB_POOL_SIZE "));
        }
    }

    #[test]
    fn a_url_may_come_in_a_file() {
        let path = env::temp_dir().join(format!("bench-url-{}", std::process::id()));
        fs::write(&path, format!("{URL}\n")).unwrap();
        let name = path.to_str().unwrap();
        let read = config(&[("ADDR", "[::1]:80"), ("DATABASE_URL_FILE", name)]);
        fs::remove_file(&path).unwrap();
        assert_eq!(read.unwrap().database.unwrap().connection.get_dbname(), Some("lab"));
        let gone = config(&[("ADDR", "[::1]:80"), ("DATABASE_URL_FILE", name)]);
        assert!(gone.unwrap_err().starts_with("DATABASE_URL_FILE "));
    }

    #[test]
    fn a_wrong_url_is_not_shown() {
        let database = config(&[("ADDR", "[::1]:80"), ("DATABASE_URL", URL)]).unwrap().database;
        assert_eq!(database.unwrap().pool_size, DEFAULT_POOL_SIZE);
        for wrong in [
            "",
            "secret",
            "mysql://lab:secret@h/lab",
            "host=secret user=lab",
            "postgres://lab:secret@h:port/lab",
            "postgres://lab:secret@h/lab?secret=1",
            "postgres://lab:secret@h",
            "postgres://lab:secret@/lab",
            "postgres://h/secret",
        ] {
            let sentence = config(&[("ADDR", "[::1]:80"), ("DATABASE_URL", wrong)]).unwrap_err();
            assert!(sentence.starts_with("DATABASE_URL "), "{sentence}");
            assert!(!sentence.contains("secret"), "{sentence}");
        }
    }
}
