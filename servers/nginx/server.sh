#!/bin/sh
# Starts nginx in the foreground on ADDR with the lab's fixed answers. All files that it writes are
# in a new folder in ${TMPDIR:-/tmp}, so that it runs with a read-only root file system and without
# root's rights.
set -eu

fail() {
    echo "$1" >&2
    exit 2
}

address=${ADDR-}
nonce=${LAB_NONCE-}
# Both values become part of the configuration, so refuse any character that they cannot contain.
printf '%s' "$address" | grep -Eqx '([0-9]{1,3}(\.[0-9]{1,3}){3}|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}' ||
    fail "ADDR must be IP:PORT, such as 127.0.0.1:8080, but it is \"$address\"."
case $nonce in
*[!A-Za-z0-9]*) fail "LAB_NONCE must consist of letters and digits, but it is \"$nonce\"." ;;
esac

# nproc counts the CPUs of the affinity mask, unless these two variables give another number.
unset OMP_NUM_THREADS OMP_THREAD_LIMIT
workers=$(nproc)

# Read the hard limit from /proc, because the option -H of the shell's ulimit is not in POSIX.
files=$(awk '/^Max open files/ {print $5}' /proc/self/limits)
if [ "$files" = unlimited ] || [ "$files" -gt 65536 ]; then
    files=65536
fi
# A worker needs a few files besides its connections.
connections=$((files > 16896 ? 16384 : files - files / 32))

folder=$(mktemp -d "${TMPDIR:-/tmp}/lab-nginx.XXXXXX")
# If root starts nginx, the workers run as another user, who must be able to read this folder.
chmod 711 "$folder"

# The contract's list of devices, one per line as "number firmware".
devices=$(awk '{
    printf "%s{\"uuid\":\"7b6d3c1e-2f7a-4a55-9c0e-1d2f3a4b5c0%s\",\"mac\":\"02-00-00-00-00-0%s\",\"firmware\":\"%s\"}", comma, $1, $1, $2
    comma = ","
}' <<END
1 1.0.0
2 1.0.4
3 1.2.0
4 2.0.1
5 3.1.5
END
)

cat >"$folder/nginx.conf" <<END
daemon off;
pid "$folder/nginx.pid";
error_log stderr error;
worker_processes $workers;
worker_rlimit_nofile $files;

events {
    worker_connections $connections;
    multi_accept on;
}

http {
    access_log off;
    server_tokens off;
    default_type application/json;
    keepalive_requests 1000000000;
    keepalive_timeout 300s;
    client_header_timeout 10s;
    client_body_temp_path "$folder/body";
    proxy_temp_path "$folder/proxy";
    fastcgi_temp_path "$folder/fastcgi";
    uwsgi_temp_path "$folder/uwsgi";
    scgi_temp_path "$folder/scgi";

    server {
        listen $address backlog=65535;

        location = /health {
            return 200 '{"status":"ok","server":"nginx","nonce":"$nonce"}';
        }
        # Connections have serial numbers, which all workers share. So the serial number of this
        # connection is the number of connections accepted so far.
        location = /stats {
            return 200 '{"requests":null,"connections":\$connection,"gc":null,"pool":null}';
        }
        location = /count {
            return 200 '{"code":200,"message":0}';
        }
        location = /devices {
            return 200 '[$devices]';
        }
        location / {
            return 200 '{"code":404,"message":"not found"}';
        }
    }
}
END

exec nginx -e stderr -p "$folder" -c "$folder/nginx.conf"
