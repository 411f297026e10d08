-- The table behind POST /devices; made in a fresh database before each server starts.
CREATE TABLE devices (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid       uuid        NOT NULL,
    mac        text        NOT NULL,
    firmware   text        NOT NULL,
    created_at timestamptz NOT NULL
);
