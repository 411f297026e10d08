//! The devices in PostgreSQL, behind a pool of connections.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod};
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use tokio::task::JoinError;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::NoTls;
use uuid::Uuid;

use crate::answer::Refusal;
use crate::config::Database;
use crate::stats::PoolStats;

/// The longest time for an insert: waiting for a connection, opening it, and the statement.
const BUDGET: Duration = Duration::from_secs(5);

const INSERT: &str =
    "INSERT INTO devices (uuid, mac, firmware, created_at) VALUES ($1, $2, $3, $4) RETURNING id";

/// A stored device, and the body of the answer to its insert.
#[derive(Debug, Serialize)]
pub struct Device {
    id: i64,
    uuid: Uuid,
    mac: String,
    firmware: String,
    #[serde(serialize_with = "with_six_digits")]
    created_at: Timestamp,
}

/// The table of devices. Connections are opened on demand and kept.
pub struct Store {
    pool: Pool,
}

impl Store {
    /// Opens no connection yet, so a database that is down is no error at the start.
    ///
    /// # Panics
    ///
    /// Never: `build` fails only for a pool that has timeouts but no runtime.
    pub fn new(database: Database) -> Self {
        // With `Fast`, deadpool only checks whether a connection is known to be closed. It sends no
        // query to the database.
        let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(database.connection, NoTls, config);
        let pool = Pool::builder(manager).max_size(database.pool_size).build();
        Self { pool: pool.expect("a pool without timeouts needs no runtime") }
    }

    /// Inserts a device with a new uuid and the present time. A failed insert is not repeated,
    /// because it may have succeeded in the database.
    pub async fn insert(&self, mac: String, firmware: String) -> Result<Device, StoreError> {
        let deadline = Instant::now() + BUDGET;
        let connection = timeout_at(deadline, self.pool.get()).await??;
        let created_at = Timestamp::from_microsecond(Timestamp::now().as_microsecond())
            .expect("a time with its nanoseconds cut off stays in range");
        let device = Device { id: 0, uuid: Uuid::new_v4(), mac, firmware, created_at };
        // The insert is a task of its own, so that it runs to its end even if the client leaves and
        // the server drops the request. Therefore no connection goes back to the pool while its
        // statement is still running.
        tokio::spawn(insert_until(deadline, connection, device)).await?
    }

    /// The pool's state, without the connections that the database has closed.
    pub fn stats(&self) -> PoolStats {
        self.pool.retain(|connection, _| !connection.is_closed());
        // deadpool's `size` counts open connections, and its `available` counts idle ones.
        let status = self.pool.status();
        PoolStats {
            size: status.max_size,
            in_use: status.size - status.available,
            idle: status.available,
            waiting: status.waiting,
        }
    }
}

async fn insert_until(
    deadline: Instant,
    connection: Object,
    device: Device,
) -> Result<Device, StoreError> {
    let id: Result<i64, StoreError> = match timeout_at(deadline, insert(&connection, &device)).await
    {
        Ok(Ok(id)) => Ok(id),
        Ok(Err(error)) => Err(error.into()),
        Err(elapsed) => Err(elapsed.into()),
    };
    if id.is_err() {
        // The connection is closed, because the answer to the failed statement may still arrive on
        // it.
        drop(Object::take(connection));
    }
    Ok(Device { id: id?, ..device })
}

async fn insert(connection: &Object, device: &Device) -> Result<i64, tokio_postgres::Error> {
    let statement = connection.prepare_cached(INSERT).await?;
    let Device { uuid, mac, firmware, created_at, .. } = device;
    let row = connection.query_one(&statement, &[uuid, mac, firmware, created_at]).await?;
    row.try_get(0)
}

/// Writes `2026-11-21T04:00:00.123456Z`, zeros at the end included.
fn with_six_digits<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.6}"))
}

/// Why a device was not stored, or why it is not known whether it was.
#[derive(Debug)]
pub enum StoreError {
    /// The time limit was reached.
    TimedOut,
    /// The database, or the connection to it, failed.
    Failed(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::TimedOut => {
                write!(formatter, "the database did not answer within {} s", BUDGET.as_secs())
            }
            Self::Failed(reason) => write!(formatter, "the database failed: {reason}"),
        }
    }
}

impl From<Elapsed> for StoreError {
    fn from(_: Elapsed) -> Self {
        Self::TimedOut
    }
}

impl From<PoolError> for StoreError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => error.into(),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        // The error itself says only where it happened; its source says why.
        Self::Failed(match error.source() {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        })
    }
}

impl From<JoinError> for StoreError {
    fn from(error: JoinError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::unavailable(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn times_have_six_digits() {
        let device = |microseconds| Device {
            id: 7,
            uuid: Uuid::nil(),
            mac: "x".to_owned(),
            firmware: "y".to_owned(),
            created_at: Timestamp::from_microsecond(microseconds).unwrap(),
        };
        let text = |microseconds| String::from_utf8(json::write(&device(microseconds))).unwrap();
        assert_eq!(
            text(1_700_000_000_120_000),
            concat!(
                r#"{"id":7,"uuid":"00000000-0000-0000-0000-000000000000","mac":"x","firmware":"y","#,
                r#""created_at":"2023-11-14T22:13:20.120000Z"}"#
            )
        );
        assert!(text(1_700_000_000_000_000).contains("22:13:20.000000Z"));
    }
}
