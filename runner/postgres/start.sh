#!/bin/sh
# Makes a fresh cluster in $PGDATA, unless the folder already contains one. Then serves the cluster
# in the foreground on 127.0.0.1:$PGPORT, or on $LAB_ADDRESS to the addresses in $LAB_CLIENTS. The
# role `lab` owns the database `lab`. It gets $LAB_VERIFIER, the SCRAM verifier of its password,
# because the password itself is never given to this script.
set -eu

here=$(dirname "$0")
config="$here/postgresql.conf"
PATH="$PG_BIN:$PATH"

# Single-user mode runs one statement per line. It exits with 0 even if statements fail, so look for
# errors in its output.
sql() {
    said=$(postgres --single -D "$PGDATA" -c config_file="$config" -c log_min_messages=error "$1" 2>&1 > /dev/null)
    case $said in
    *ERROR:* | *FATAL:*)
        echo "$said" >&2
        exit 1
        ;;
    esac
}

if [ ! -e "$PGDATA/PG_VERSION" ]; then
    initdb --pgdata="$PGDATA" --username=postgres --auth=reject --encoding=UTF8 --locale=C.UTF-8 --no-sync > /dev/null
    for client in ${LAB_CLIENTS:-127.0.0.1/32}; do
        echo "host lab lab $client scram-sha-256"
    done > "$PGDATA/pg_hba.conf"
    sql postgres <<END
CREATE ROLE lab LOGIN PASSWORD '$LAB_VERIFIER'
GRANT pg_read_all_stats TO lab
CREATE DATABASE lab OWNER lab
END
    sql lab <<END
CREATE EXTENSION pg_stat_statements
END
fi
unset LAB_VERIFIER
exec postgres -D "$PGDATA" -c config_file="$config" -c listen_addresses="${LAB_ADDRESS:-127.0.0.1}" -p "$PGPORT"
