-- +goose Up
INSERT IGNORE INTO outbox_meta (id, store_id) VALUES (1, UUID());

-- +goose Down
DELETE FROM outbox_meta;
