CREATE FUNCTION public.ptdock_refuse() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'integrity_constraint_violation'; END $$;
CREATE TABLE public.adapters (
    name text NOT NULL,
    created text NOT NULL,
    CONSTRAINT ck_adapters_name_is_name CHECK ((((length(name) >= 1) AND (length(name) <= 64)) AND (TRIM(BOTH 'abcdefghijklmnopqrstuvwxyz0123456789._-'::text FROM name) = ''::text) AND (TRIM(BOTH 'abcdefghijklmnopqrstuvwxyz0123456789'::text FROM substr(name, 1, 1)) = ''::text) AND (substr(name, length(name)) <> '.'::text)))
);
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.arms (
    channel text NOT NULL,
    sequence bigint NOT NULL,
    "position" integer NOT NULL,
    release integer,
    share_bp integer NOT NULL,
    state text NOT NULL,
    holdout integer NOT NULL,
    CONSTRAINT ck_arms_holdout CHECK (((holdout = 0) OR ((holdout = 1) AND (release IS NULL)))),
    CONSTRAINT ck_arms_position CHECK (("position" >= 0)),
    CONSTRAINT ck_arms_share CHECK (((share_bp >= 1) AND (share_bp <= 10000))),
    CONSTRAINT ck_arms_state CHECK (((state = ANY (ARRAY['open'::text, 'halted'::text])) AND ((release IS NOT NULL) OR (state = 'open'::text))))
);
CREATE TABLE public.attachments (
    adapter text NOT NULL,
    version text NOT NULL,
    name text NOT NULL,
    blob text NOT NULL,
    CONSTRAINT ck_attachments_name CHECK ((name <> ''::text))
);
CREATE TABLE public.base_files (
    base text NOT NULL,
    name text NOT NULL,
    blob text NOT NULL,
    CONSTRAINT ck_base_files_name CHECK ((name <> ''::text))
);
CREATE TABLE public.bases (
    fingerprint text NOT NULL,
    tensors text NOT NULL,
    hint text NOT NULL,
    prompt text,
    created text NOT NULL,
    CONSTRAINT ck_bases_fingerprint_is_digest CHECK (((length(fingerprint) = 71) AND (substr(fingerprint, 1, 7) = 'sha256:'::text) AND (TRIM(BOTH '0123456789abcdef'::text FROM substr(fingerprint, 8)) = ''::text)))
);
CREATE TABLE public.blobs (
    digest text NOT NULL,
    size bigint NOT NULL,
    condemned_at text,
    CONSTRAINT ck_blobs_digest_is_digest CHECK (((length(digest) = 71) AND (substr(digest, 1, 7) = 'sha256:'::text) AND (TRIM(BOTH '0123456789abcdef'::text FROM substr(digest, 8)) = ''::text))),
    CONSTRAINT ck_blobs_size CHECK ((size >= 0))
);
CREATE TABLE public.build_parts (
    build integer NOT NULL,
    role text NOT NULL,
    blob text NOT NULL,
    CONSTRAINT ck_build_parts_role CHECK ((role = ANY (ARRAY['prompt'::text, 'wire'::text, 'wire_table'::text, 'self_test'::text])))
);
CREATE TABLE public.builds (
    id integer NOT NULL,
    adapter text NOT NULL,
    version text NOT NULL,
    foundation text NOT NULL,
    template integer NOT NULL,
    digest text NOT NULL,
    factors text NOT NULL,
    warnings text NOT NULL,
    created text NOT NULL,
    revoked text,
    revoked_at text,
    CONSTRAINT ck_builds_revocation CHECK (((revoked IS NULL) = (revoked_at IS NULL)))
);
CREATE SEQUENCE public.builds_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.builds_id_seq OWNED BY public.builds.id;
CREATE TABLE public.channels (
    name text NOT NULL,
    salt text NOT NULL,
    settings text NOT NULL,
    created text NOT NULL,
    deleted_at text,
    CONSTRAINT ck_channels_name_is_name CHECK ((((length(name) >= 1) AND (length(name) <= 64)) AND (TRIM(BOTH 'abcdefghijklmnopqrstuvwxyz0123456789._-'::text FROM name) = ''::text) AND (TRIM(BOTH 'abcdefghijklmnopqrstuvwxyz0123456789'::text FROM substr(name, 1, 1)) = ''::text) AND (substr(name, length(name)) <> '.'::text))),
    CONSTRAINT ck_channels_salt CHECK (((length(salt) = 32) AND (TRIM(BOTH '0123456789abcdef'::text FROM salt) = ''::text)))
);
CREATE TABLE public.events (
    id bigint NOT NULL,
    at text NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subject text NOT NULL,
    before text,
    after text,
    prev text NOT NULL,
    digest text NOT NULL,
    CONSTRAINT ck_events_digest_is_digest CHECK (((length(digest) = 71) AND (substr(digest, 1, 7) = 'sha256:'::text) AND (TRIM(BOTH '0123456789abcdef'::text FROM substr(digest, 8)) = ''::text))),
    CONSTRAINT ck_events_id CHECK ((id >= 1)),
    CONSTRAINT ck_events_prev_is_digest CHECK (((length(prev) = 71) AND (substr(prev, 1, 7) = 'sha256:'::text) AND (TRIM(BOTH '0123456789abcdef'::text FROM substr(prev, 8)) = ''::text)))
);
CREATE TABLE public.foundation_names (
    name text NOT NULL,
    foundation text NOT NULL,
    CONSTRAINT ck_foundation_names_name_is_name CHECK ((((length(name) >= 1) AND (length(name) <= 64)) AND (TRIM(BOTH 'abcdefghijklmnopqrstuvwxyz0123456789._-'::text FROM name) = ''::text) AND (TRIM(BOTH 'abcdefghijklmnopqrstuvwxyz0123456789'::text FROM substr(name, 1, 1)) = ''::text) AND (substr(name, length(name)) <> '.'::text)))
);
CREATE TABLE public.foundation_recipes (
    foundation text NOT NULL,
    recipe text NOT NULL,
    created text NOT NULL
);
CREATE TABLE public.foundation_tensors (
    foundation text NOT NULL,
    key text NOT NULL,
    names text NOT NULL,
    digest text NOT NULL,
    size bigint NOT NULL,
    "offset" bigint NOT NULL,
    dtype text NOT NULL,
    shape text NOT NULL,
    CONSTRAINT ck_foundation_tensors_digest_is_digest CHECK (((length(digest) = 71) AND (substr(digest, 1, 7) = 'sha256:'::text) AND (TRIM(BOTH '0123456789abcdef'::text FROM substr(digest, 8)) = ''::text))),
    CONSTRAINT ck_foundation_tensors_extent CHECK ((("offset" >= 0) AND (size >= 0))),
    CONSTRAINT ck_foundation_tensors_key CHECK ((key <> ''::text))
);
CREATE TABLE public.foundations (
    digest text NOT NULL,
    base text NOT NULL,
    modules text NOT NULL,
    created text NOT NULL
);
CREATE TABLE public.line_entries (
    release integer NOT NULL,
    foundation text NOT NULL,
    adapter text NOT NULL,
    build integer NOT NULL
);
CREATE TABLE public.lines (
    release integer NOT NULL,
    "position" integer NOT NULL,
    foundation text NOT NULL,
    CONSTRAINT ck_lines_position CHECK (("position" >= 0))
);
CREATE TABLE public.manifests (
    channel text NOT NULL,
    sequence bigint NOT NULL,
    digest text NOT NULL,
    issued bigint NOT NULL,
    expires bigint NOT NULL,
    log_head text NOT NULL,
    CONSTRAINT ck_manifests_lifetime CHECK ((expires > issued)),
    CONSTRAINT ck_manifests_sequence CHECK ((sequence >= 1))
);
CREATE TABLE public.proofs (
    id integer NOT NULL,
    build integer NOT NULL,
    document text NOT NULL,
    self_test text,
    created text NOT NULL
);
CREATE SEQUENCE public.proofs_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.proofs_id_seq OWNED BY public.proofs.id;
CREATE TABLE public.recipes (
    digest text NOT NULL,
    document text NOT NULL,
    CONSTRAINT ck_recipes_digest_is_digest CHECK (((length(digest) = 71) AND (substr(digest, 1, 7) = 'sha256:'::text) AND (TRIM(BOTH '0123456789abcdef'::text FROM substr(digest, 8)) = ''::text)))
);
CREATE TABLE public.registry (
    id integer NOT NULL,
    uuid text NOT NULL,
    created text NOT NULL,
    CONSTRAINT ck_registry_single CHECK ((id = 1)),
    CONSTRAINT ck_registry_uuid CHECK ((length(uuid) = 36))
);
CREATE TABLE public.release_files (
    release integer NOT NULL,
    blob text NOT NULL
);
CREATE TABLE public.releases (
    number integer NOT NULL,
    document text NOT NULL,
    holes integer NOT NULL,
    created text NOT NULL,
    CONSTRAINT ck_releases_holes CHECK ((holes = ANY (ARRAY[0, 1]))),
    CONSTRAINT ck_releases_number CHECK ((number >= 1))
);
CREATE TABLE public.source_files (
    source text NOT NULL,
    name text NOT NULL,
    blob text NOT NULL,
    CONSTRAINT ck_source_files_name CHECK ((name <> ''::text))
);
CREATE TABLE public.sources (
    digest text NOT NULL
);
CREATE TABLE public.structures (
    digest text NOT NULL,
    document text NOT NULL,
    CONSTRAINT ck_structures_digest_is_digest CHECK (((length(digest) = 71) AND (substr(digest, 1, 7) = 'sha256:'::text) AND (TRIM(BOTH '0123456789abcdef'::text FROM substr(digest, 8)) = ''::text)))
);
CREATE TABLE public.templates (
    id integer NOT NULL,
    digest text NOT NULL,
    foundation text NOT NULL,
    structure text NOT NULL,
    context integer NOT NULL,
    graph integer NOT NULL,
    executorch text NOT NULL,
    hollow text NOT NULL,
    relocations text NOT NULL,
    program_size bigint NOT NULL,
    runtime text NOT NULL,
    kv_cache_bytes bigint NOT NULL,
    created text NOT NULL,
    CONSTRAINT ck_templates_digest_is_digest CHECK (((length(digest) = 71) AND (substr(digest, 1, 7) = 'sha256:'::text) AND (TRIM(BOTH '0123456789abcdef'::text FROM substr(digest, 8)) = ''::text))),
    CONSTRAINT ck_templates_sizes CHECK (((context >= 1) AND (graph >= 0) AND (program_size >= 0) AND (kv_cache_bytes >= 0)))
);
CREATE SEQUENCE public.templates_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.templates_id_seq OWNED BY public.templates.id;
CREATE TABLE public.tokens (
    id text NOT NULL,
    name text NOT NULL,
    scope text NOT NULL,
    digest text NOT NULL,
    created text NOT NULL,
    revoked_at text,
    CONSTRAINT ck_tokens_digest_is_digest CHECK (((length(digest) = 71) AND (substr(digest, 1, 7) = 'sha256:'::text) AND (TRIM(BOTH '0123456789abcdef'::text FROM substr(digest, 8)) = ''::text))),
    CONSTRAINT ck_tokens_id CHECK (((length(id) = 16) AND (TRIM(BOTH '0123456789abcdef'::text FROM id) = ''::text))),
    CONSTRAINT ck_tokens_name_is_name CHECK ((((length(name) >= 1) AND (length(name) <= 64)) AND (TRIM(BOTH 'abcdefghijklmnopqrstuvwxyz0123456789._-'::text FROM name) = ''::text) AND (TRIM(BOTH 'abcdefghijklmnopqrstuvwxyz0123456789'::text FROM substr(name, 1, 1)) = ''::text) AND (substr(name, length(name)) <> '.'::text))),
    CONSTRAINT ck_tokens_scope CHECK ((scope = ANY (ARRAY['publish'::text, 'release'::text, 'admin'::text])))
);
CREATE TABLE public.versions (
    adapter text NOT NULL,
    version text NOT NULL,
    source text NOT NULL,
    lineage text NOT NULL,
    created text NOT NULL,
    yanked text,
    yanked_at text,
    CONSTRAINT ck_versions_version_is_semver CHECK ((((length(version) >= 5) AND (length(version) <= 255)) AND (TRIM(BOTH 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+-'::text FROM version) = ''::text))),
    CONSTRAINT ck_versions_yank CHECK (((yanked IS NULL) = (yanked_at IS NULL)))
);
ALTER TABLE ONLY public.builds ALTER COLUMN id SET DEFAULT nextval('public.builds_id_seq'::regclass);
ALTER TABLE ONLY public.proofs ALTER COLUMN id SET DEFAULT nextval('public.proofs_id_seq'::regclass);
ALTER TABLE ONLY public.templates ALTER COLUMN id SET DEFAULT nextval('public.templates_id_seq'::regclass);
INSERT INTO public.adapters VALUES ('pirate', '2026-05-28T20:26:40.000000Z');
INSERT INTO public.adapters VALUES ('json', '2026-05-28T20:26:40.000000Z');
INSERT INTO public.alembic_version VALUES ('0005');
INSERT INTO public.arms VALUES ('stable', 1, 0, 1, 10000, 'open', 0);
INSERT INTO public.attachments VALUES ('pirate', '1.0.0', 'README.md', 'sha256:40f8e16c482c2c9b58dd917f82612a4366913006b4d8241f55cc75db07b1f4fe');
INSERT INTO public.attachments VALUES ('json', '1.0.0', 'README.md', 'sha256:6107556c987405b20d45f019cb635770660b9b0f25b39262ce3343fd905cde97');
INSERT INTO public.base_files VALUES ('sha256:cae662172fd450bb0cd710a769079c05bfc5d8e35efa6576edc7d0377afdd4a2', 'config.json', 'sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a');
INSERT INTO public.base_files VALUES ('sha256:cae662172fd450bb0cd710a769079c05bfc5d8e35efa6576edc7d0377afdd4a2', 'tokenizer.json', 'sha256:f38b8a0d18d3219d24ec4ab6d4012df644ef189cd25ea43ab5ea2304a410f7cb');
INSERT INTO public.bases VALUES ('sha256:cae662172fd450bb0cd710a769079c05bfc5d8e35efa6576edc7d0377afdd4a2', 'sha256:cae662172fd450bb0cd710a769079c05bfc5d8e35efa6576edc7d0377afdd4a2', '/checkpoint', NULL, '2026-05-28T20:26:40.000000Z');
INSERT INTO public.blobs VALUES ('sha256:cae662172fd450bb0cd710a769079c05bfc5d8e35efa6576edc7d0377afdd4a2', 4, NULL);
INSERT INTO public.blobs VALUES ('sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a', 2, NULL);
INSERT INTO public.blobs VALUES ('sha256:f38b8a0d18d3219d24ec4ab6d4012df644ef189cd25ea43ab5ea2304a410f7cb', 17, NULL);
INSERT INTO public.blobs VALUES ('sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f', 1312, NULL);
INSERT INTO public.blobs VALUES ('sha256:5ae01c606803df72cc5849afa1ab6436c8358d7c941154525451fe9039bc469d', 5376, NULL);
INSERT INTO public.blobs VALUES ('sha256:1b82c56d51a48a2cbb77ac8c287b111a78fe8fe9a876e7e0712aaf9c0e532dd5', 146, NULL);
INSERT INTO public.blobs VALUES ('sha256:9659bc9eb3a60cbc7a0720183a1fd0156f8c48df1fd375b410ca442c054505cc', 1607, NULL);
INSERT INTO public.blobs VALUES ('sha256:82ce145b48cd082098483c6507fc941f36568e995536c6c8eae7173b01ab434d', 154, NULL);
INSERT INTO public.blobs VALUES ('sha256:790f1c4d00a83dd3f0142e575fb9cdee816ff062ee18cd8e6330e25f4cb20f87', 5376, NULL);
INSERT INTO public.blobs VALUES ('sha256:0658d2cf932e81f214530c7e155a7509389de5c17f0ee179f5b0c150996f4c73', 128, NULL);
INSERT INTO public.blobs VALUES ('sha256:c4538efc9fc4506986a04320cc82527dd34ca4366fcf99ec092a6a9351981c78', 260, NULL);
INSERT INTO public.blobs VALUES ('sha256:2e6839f29b1ea4ae7bedab9223832ba40e51fd637755656065729aca231e2c86', 3, NULL);
INSERT INTO public.blobs VALUES ('sha256:40f8e16c482c2c9b58dd917f82612a4366913006b4d8241f55cc75db07b1f4fe', 9, NULL);
INSERT INTO public.blobs VALUES ('sha256:24306954f5ae9f043b7be7a7cb8dd08cd8e7daa4354206f663dad9f9c07349d3', 5376, NULL);
INSERT INTO public.blobs VALUES ('sha256:03f787324c220009a75598de9e60dab37f778c9a43e4d9a496b4980e8c929dc8', 128, NULL);
INSERT INTO public.blobs VALUES ('sha256:8e4d17963b37d928a1a05029c3268ea8daf8ca9205621567639af12e7ec44be4', 260, NULL);
INSERT INTO public.blobs VALUES ('sha256:6107556c987405b20d45f019cb635770660b9b0f25b39262ce3343fd905cde97', 8, NULL);
INSERT INTO public.blobs VALUES ('sha256:0c096108a87a4cfcbec852bb1c0140bf5474bca17b19ca51d0e0936749825d5d', 927, NULL);
INSERT INTO public.blobs VALUES ('sha256:7853b8f6326a1f9b54289c83c50908cd7a9ba0c7676467686015905ceabed764', 420, NULL);
INSERT INTO public.blobs VALUES ('sha256:54c6d3261fea5e735a4ed8623da8cbb030d1030a39a5afe9fa71e307eabd1c4f', 486, NULL);
INSERT INTO public.builds VALUES (1, 'pirate', '1.0.0', 'sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f', 2, 'sha256:790f1c4d00a83dd3f0142e575fb9cdee816ff062ee18cd8e6330e25f4cb20f87', 'sha256:0658d2cf932e81f214530c7e155a7509389de5c17f0ee179f5b0c150996f4c73', '["base not pinned"]', '2026-05-28T20:26:40.000000Z', NULL, NULL);
INSERT INTO public.builds VALUES (2, 'json', '1.0.0', 'sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f', 2, 'sha256:24306954f5ae9f043b7be7a7cb8dd08cd8e7daa4354206f663dad9f9c07349d3', 'sha256:03f787324c220009a75598de9e60dab37f778c9a43e4d9a496b4980e8c929dc8', '["base not pinned"]', '2026-05-28T20:26:40.000000Z', NULL, NULL);
INSERT INTO public.channels VALUES ('stable', '9f9c516f22554f0f22d3189175601750', '{"lifetime_seconds":2592000,"poll_seconds":14400}', '2026-05-28T20:26:40.000000Z', NULL);
INSERT INTO public.events VALUES (1, '2026-05-28T20:26:40.000000Z', 'tester', 'registry.init', 'dae14381-4a51-4ea4-8ca0-a56c01ae292d', NULL, NULL, 'sha256:a5fa610b04d8d4c1c92aa62cf3769a24e0070cecc1b45874ba0b1244e0f8a477', 'sha256:54b4f36de3d98e67ed107d02e3db84268c40219938d8b22c6254b104ad20adff');
INSERT INTO public.events VALUES (2, '2026-05-28T20:26:40.000000Z', 'tester', 'base.add', 'sha256:cae662172fd450bb0cd710a769079c05bfc5d8e35efa6576edc7d0377afdd4a2', NULL, '{"files":{"config.json":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","tokenizer.json":"sha256:f38b8a0d18d3219d24ec4ab6d4012df644ef189cd25ea43ab5ea2304a410f7cb"},"hint":"/checkpoint","prompt":null}', 'sha256:54b4f36de3d98e67ed107d02e3db84268c40219938d8b22c6254b104ad20adff', 'sha256:e3d5d195596142884fb1ed4de21a83f36ec35a3b4b7c8c19c4d0367bc3d3ef99');
INSERT INTO public.events VALUES (3, '2026-05-28T20:26:40.000000Z', 'tester', 'foundation.add', 'sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f', NULL, '{"base":"sha256:cae662172fd450bb0cd710a769079c05bfc5d8e35efa6576edc7d0377afdd4a2","modules":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}', 'sha256:e3d5d195596142884fb1ed4de21a83f36ec35a3b4b7c8c19c4d0367bc3d3ef99', 'sha256:2ce511f3a91584aedb2efdec46f90666faaabf1dde95d34cafe665ab18eea398');
INSERT INTO public.events VALUES (4, '2026-05-28T20:26:40.000000Z', 'tester', 'foundation.recipe', 'sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f', NULL, '{"other":0,"quantization":"none"}', 'sha256:2ce511f3a91584aedb2efdec46f90666faaabf1dde95d34cafe665ab18eea398', 'sha256:eea073cd5c4948ae0595a5497991032273a5eaa9010ab609409dba7e962fe617');
INSERT INTO public.events VALUES (5, '2026-05-28T20:26:40.000000Z', 'tester', 'foundation.name', 'f1', NULL, '"sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f"', 'sha256:eea073cd5c4948ae0595a5497991032273a5eaa9010ab609409dba7e962fe617', 'sha256:04d14f8724e060edef0ce55c9c25663ba402e4f9df4907aff0e52118eae47ba9');
INSERT INTO public.events VALUES (6, '2026-05-28T20:26:40.000000Z', 'tester', 'template.add', 'sha256:5ae01c606803df72cc5849afa1ab6436c8358d7c941154525451fe9039bc469d', NULL, '{"context":512,"foundation":"sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f","structure":"sha256:bb476d1279ed6aa83f832d75ef15b019337a45f6799aa15e1ca659b393d76b4b"}', 'sha256:04d14f8724e060edef0ce55c9c25663ba402e4f9df4907aff0e52118eae47ba9', 'sha256:46a2543e75d2062023924fb9aa55832e4b5d1364675b7bf043256d34b743e5e2');
INSERT INTO public.events VALUES (7, '2026-05-28T20:26:40.000000Z', 'tester', 'template.add', 'sha256:35633b04f3325db7d7f31c70bda01a00ae217d0ca1597a37669c2f8e350ca839', NULL, '{"context":512,"foundation":"sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f","structure":"sha256:b0924d4676c970614a834352fc20a0f3571f7a81b61e7b9ce119d64b5e987d3f"}', 'sha256:46a2543e75d2062023924fb9aa55832e4b5d1364675b7bf043256d34b743e5e2', 'sha256:f0a57b4224345451e189983e81c46de91b172dce0518acb5bee7665f447754dd');
INSERT INTO public.events VALUES (8, '2026-05-28T20:26:40.000000Z', 'tester', 'adapter.publish', 'pirate@1.0.0', NULL, '{"build":"sha256:790f1c4d00a83dd3f0142e575fb9cdee816ff062ee18cd8e6330e25f4cb20f87","factors":"sha256:0658d2cf932e81f214530c7e155a7509389de5c17f0ee179f5b0c150996f4c73","foundation":"sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f","source":"sha256:c4538efc9fc4506986a04320cc82527dd34ca4366fcf99ec092a6a9351981c78","template":"sha256:35633b04f3325db7d7f31c70bda01a00ae217d0ca1597a37669c2f8e350ca839"}', 'sha256:f0a57b4224345451e189983e81c46de91b172dce0518acb5bee7665f447754dd', 'sha256:bc477da79d8a55bf002d7cdc36cfa0b97f2369fc7ebee5a2328f1030fc313019');
INSERT INTO public.events VALUES (9, '2026-05-28T20:26:40.000000Z', 'tester', 'adapter.publish', 'json@1.0.0', NULL, '{"build":"sha256:24306954f5ae9f043b7be7a7cb8dd08cd8e7daa4354206f663dad9f9c07349d3","factors":"sha256:03f787324c220009a75598de9e60dab37f778c9a43e4d9a496b4980e8c929dc8","foundation":"sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f","source":"sha256:8e4d17963b37d928a1a05029c3268ea8daf8ca9205621567639af12e7ec44be4","template":"sha256:35633b04f3325db7d7f31c70bda01a00ae217d0ca1597a37669c2f8e350ca839"}', 'sha256:bc477da79d8a55bf002d7cdc36cfa0b97f2369fc7ebee5a2328f1030fc313019', 'sha256:a4d4b615d7f126914c7056987651281b4692538bde2b65270180e6fd6948667c');
INSERT INTO public.events VALUES (10, '2026-05-28T20:26:40.000000Z', 'tester', 'channel.create', 'channel stable', NULL, '{"lifetime_seconds":2592000,"poll_seconds":14400}', 'sha256:a4d4b615d7f126914c7056987651281b4692538bde2b65270180e6fd6948667c', 'sha256:f3e574cc7b2001b902fa5b096e9b42a9b02a00c10f327ffd1545f66efa00b2bd');
INSERT INTO public.events VALUES (11, '2026-05-28T20:26:40.000000Z', 'tester', 'release.create', 'release 1', NULL, '{"adapters":["json@1.0.0","pirate@1.0.0"],"document":"sha256:0c096108a87a4cfcbec852bb1c0140bf5474bca17b19ca51d0e0936749825d5d","offer":{"channel":"stable","share_bp":10000}}', 'sha256:f3e574cc7b2001b902fa5b096e9b42a9b02a00c10f327ffd1545f66efa00b2bd', 'sha256:e61a2416fa2625d78b2cfb6da9306cf8e661b1374720f29a34082055ce83e1b8');
INSERT INTO public.events VALUES (12, '2026-05-28T20:26:40.000000Z', 'tester', 'adapter.yank', 'json@1.0.0', NULL, '"kept"', 'sha256:e61a2416fa2625d78b2cfb6da9306cf8e661b1374720f29a34082055ce83e1b8', 'sha256:227260922759b13b1998920726c628444b0104d775a1cc3f490ad6b9bb456b04');
INSERT INTO public.foundation_names VALUES ('f1', 'sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f');
INSERT INTO public.foundation_recipes VALUES ('sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f', 'sha256:0ed6d08ac7f16cfbab8c0cd24a2708b4ecf4d74942a7f0c333183dee5fa72d96', '2026-05-28T20:26:40.000000Z');
INSERT INTO public.foundation_tensors VALUES ('sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f', 'embed.weight', '[]', 'sha256:8c29e314b7722bb987f69a1c442808c30543ae296c347daf3b862b05ebb1f650', 512, 512, 'F32', '[16,8]');
INSERT INTO public.foundation_tensors VALUES ('sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f', '2f09208ffbfda5a1064bed2b91808fd4c14878301771038f12c84e1b32d15aa6', '[]', 'sha256:2f09208ffbfda5a1064bed2b91808fd4c14878301771038f12c84e1b32d15aa6', 256, 1024, 'U8', '[256]');
INSERT INTO public.foundation_tensors VALUES ('sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f', '07233d89d37214009f6ed0371f88cecb5ad15520fa5a826916601e7c40a879c9', '[]', 'sha256:07233d89d37214009f6ed0371f88cecb5ad15520fa5a826916601e7c40a879c9', 32, 1280, 'U8', '[32]');
INSERT INTO public.foundations VALUES ('sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f', 'sha256:cae662172fd450bb0cd710a769079c05bfc5d8e35efa6576edc7d0377afdd4a2', 'sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a', '2026-05-28T20:26:40.000000Z');
INSERT INTO public.line_entries VALUES (1, 'sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f', 'json', 2);
INSERT INTO public.line_entries VALUES (1, 'sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f', 'pirate', 1);
INSERT INTO public.lines VALUES (1, 0, 'sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f');
INSERT INTO public.manifests VALUES ('stable', 1, 'sha256:54c6d3261fea5e735a4ed8623da8cbb030d1030a39a5afe9fa71e307eabd1c4f', 1780000000, 1782592000, 'sha256:e61a2416fa2625d78b2cfb6da9306cf8e661b1374720f29a34082055ce83e1b8');
INSERT INTO public.recipes VALUES ('sha256:0ed6d08ac7f16cfbab8c0cd24a2708b4ecf4d74942a7f0c333183dee5fa72d96', '{"other":0,"quantization":"none"}');
INSERT INTO public.registry VALUES (1, 'dae14381-4a51-4ea4-8ca0-a56c01ae292d', '2026-05-28T20:26:40.000000Z');
INSERT INTO public.release_files VALUES (1, 'sha256:5ae01c606803df72cc5849afa1ab6436c8358d7c941154525451fe9039bc469d');
INSERT INTO public.release_files VALUES (1, 'sha256:7853b8f6326a1f9b54289c83c50908cd7a9ba0c7676467686015905ceabed764');
INSERT INTO public.release_files VALUES (1, 'sha256:f38b8a0d18d3219d24ec4ab6d4012df644ef189cd25ea43ab5ea2304a410f7cb');
INSERT INTO public.releases VALUES (1, 'sha256:0c096108a87a4cfcbec852bb1c0140bf5474bca17b19ca51d0e0936749825d5d', 0, '2026-05-28T20:26:40.000000Z');
INSERT INTO public.source_files VALUES ('sha256:c4538efc9fc4506986a04320cc82527dd34ca4366fcf99ec092a6a9351981c78', 'adapter_config.json', 'sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a');
INSERT INTO public.source_files VALUES ('sha256:c4538efc9fc4506986a04320cc82527dd34ca4366fcf99ec092a6a9351981c78', 'adapter_model.safetensors', 'sha256:2e6839f29b1ea4ae7bedab9223832ba40e51fd637755656065729aca231e2c86');
INSERT INTO public.source_files VALUES ('sha256:8e4d17963b37d928a1a05029c3268ea8daf8ca9205621567639af12e7ec44be4', 'adapter_config.json', 'sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a');
INSERT INTO public.source_files VALUES ('sha256:8e4d17963b37d928a1a05029c3268ea8daf8ca9205621567639af12e7ec44be4', 'adapter_model.safetensors', 'sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a');
INSERT INTO public.sources VALUES ('sha256:c4538efc9fc4506986a04320cc82527dd34ca4366fcf99ec092a6a9351981c78');
INSERT INTO public.sources VALUES ('sha256:8e4d17963b37d928a1a05029c3268ea8daf8ca9205621567639af12e7ec44be4');
INSERT INTO public.structures VALUES ('sha256:bb476d1279ed6aa83f832d75ef15b019337a45f6799aa15e1ca659b393d76b4b', '{"equal":[],"modules":{},"schema":1}');
INSERT INTO public.structures VALUES ('sha256:b0924d4676c970614a834352fc20a0f3571f7a81b61e7b9ce119d64b5e987d3f', '{"equal":[],"modules":{"factor":{"lora":8}},"schema":1}');
INSERT INTO public.templates VALUES (1, 'sha256:5ae01c606803df72cc5849afa1ab6436c8358d7c941154525451fe9039bc469d', 'sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f', 'sha256:bb476d1279ed6aa83f832d75ef15b019337a45f6799aa15e1ca659b393d76b4b', 512, 1, '1.5.1', 'sha256:5ae01c606803df72cc5849afa1ab6436c8358d7c941154525451fe9039bc469d', 'sha256:1b82c56d51a48a2cbb77ac8c287b111a78fe8fe9a876e7e0712aaf9c0e532dd5', 5376, '{"backends":["XnnpackBackend"],"guaranteed":[1,6],"minimum":[1,5],"operators":[]}', 1024, '2026-05-28T20:26:40.000000Z');
INSERT INTO public.templates VALUES (2, 'sha256:35633b04f3325db7d7f31c70bda01a00ae217d0ca1597a37669c2f8e350ca839', 'sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f', 'sha256:b0924d4676c970614a834352fc20a0f3571f7a81b61e7b9ce119d64b5e987d3f', 512, 1, '1.5.1', 'sha256:9659bc9eb3a60cbc7a0720183a1fd0156f8c48df1fd375b410ca442c054505cc', 'sha256:82ce145b48cd082098483c6507fc941f36568e995536c6c8eae7173b01ab434d', 5376, '{"backends":["XnnpackBackend"],"guaranteed":[1,6],"minimum":[1,5],"operators":[]}', 1024, '2026-05-28T20:26:40.000000Z');
INSERT INTO public.versions VALUES ('pirate', '1.0.0', 'sha256:c4538efc9fc4506986a04320cc82527dd34ca4366fcf99ec092a6a9351981c78', '{"run":"arr"}', '2026-05-28T20:26:40.000000Z', NULL, NULL);
INSERT INTO public.versions VALUES ('json', '1.0.0', 'sha256:8e4d17963b37d928a1a05029c3268ea8daf8ca9205621567639af12e7ec44be4', '{"run":"{}"}', '2026-05-28T20:26:40.000000Z', 'kept', '2026-05-28T20:26:40.000000Z');
SELECT pg_catalog.setval('public.builds_id_seq', 2, true);
SELECT pg_catalog.setval('public.proofs_id_seq', 1, false);
SELECT pg_catalog.setval('public.templates_id_seq', 2, true);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.adapters
    ADD CONSTRAINT pk_adapters PRIMARY KEY (name);
ALTER TABLE ONLY public.arms
    ADD CONSTRAINT pk_arms PRIMARY KEY (channel, sequence, "position");
ALTER TABLE ONLY public.attachments
    ADD CONSTRAINT pk_attachments PRIMARY KEY (adapter, version, name);
ALTER TABLE ONLY public.base_files
    ADD CONSTRAINT pk_base_files PRIMARY KEY (base, name);
ALTER TABLE ONLY public.bases
    ADD CONSTRAINT pk_bases PRIMARY KEY (fingerprint);
ALTER TABLE ONLY public.blobs
    ADD CONSTRAINT pk_blobs PRIMARY KEY (digest);
ALTER TABLE ONLY public.build_parts
    ADD CONSTRAINT pk_build_parts PRIMARY KEY (build, role);
ALTER TABLE ONLY public.builds
    ADD CONSTRAINT pk_builds PRIMARY KEY (id);
ALTER TABLE ONLY public.channels
    ADD CONSTRAINT pk_channels PRIMARY KEY (name);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT pk_events PRIMARY KEY (id);
ALTER TABLE ONLY public.foundation_names
    ADD CONSTRAINT pk_foundation_names PRIMARY KEY (name);
ALTER TABLE ONLY public.foundation_recipes
    ADD CONSTRAINT pk_foundation_recipes PRIMARY KEY (foundation, recipe);
ALTER TABLE ONLY public.foundation_tensors
    ADD CONSTRAINT pk_foundation_tensors PRIMARY KEY (foundation, key);
ALTER TABLE ONLY public.foundations
    ADD CONSTRAINT pk_foundations PRIMARY KEY (digest);
ALTER TABLE ONLY public.line_entries
    ADD CONSTRAINT pk_line_entries PRIMARY KEY (release, foundation, adapter);
ALTER TABLE ONLY public.lines
    ADD CONSTRAINT pk_lines PRIMARY KEY (release, "position");
ALTER TABLE ONLY public.manifests
    ADD CONSTRAINT pk_manifests PRIMARY KEY (channel, sequence);
ALTER TABLE ONLY public.proofs
    ADD CONSTRAINT pk_proofs PRIMARY KEY (id);
ALTER TABLE ONLY public.recipes
    ADD CONSTRAINT pk_recipes PRIMARY KEY (digest);
ALTER TABLE ONLY public.registry
    ADD CONSTRAINT pk_registry PRIMARY KEY (id);
ALTER TABLE ONLY public.release_files
    ADD CONSTRAINT pk_release_files PRIMARY KEY (release, blob);
ALTER TABLE ONLY public.releases
    ADD CONSTRAINT pk_releases PRIMARY KEY (number);
ALTER TABLE ONLY public.source_files
    ADD CONSTRAINT pk_source_files PRIMARY KEY (source, name);
ALTER TABLE ONLY public.sources
    ADD CONSTRAINT pk_sources PRIMARY KEY (digest);
ALTER TABLE ONLY public.structures
    ADD CONSTRAINT pk_structures PRIMARY KEY (digest);
ALTER TABLE ONLY public.templates
    ADD CONSTRAINT pk_templates PRIMARY KEY (id);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT pk_tokens PRIMARY KEY (id);
ALTER TABLE ONLY public.versions
    ADD CONSTRAINT pk_versions PRIMARY KEY (adapter, version);
ALTER TABLE ONLY public.builds
    ADD CONSTRAINT uq_builds_adapter_version_template UNIQUE (adapter, version, template);
ALTER TABLE ONLY public.builds
    ADD CONSTRAINT uq_builds_id_foundation_adapter UNIQUE (id, foundation, adapter);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT uq_events_digest UNIQUE (digest);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT uq_events_prev UNIQUE (prev);
ALTER TABLE ONLY public.lines
    ADD CONSTRAINT uq_lines_release_foundation UNIQUE (release, foundation);
ALTER TABLE ONLY public.manifests
    ADD CONSTRAINT uq_manifests_digest UNIQUE (digest);
ALTER TABLE ONLY public.proofs
    ADD CONSTRAINT uq_proofs_build_document UNIQUE (build, document);
ALTER TABLE ONLY public.releases
    ADD CONSTRAINT uq_releases_document UNIQUE (document);
ALTER TABLE ONLY public.templates
    ADD CONSTRAINT uq_templates_foundation_structure_context_graph_executorch UNIQUE (foundation, structure, context, graph, executorch);
ALTER TABLE ONLY public.templates
    ADD CONSTRAINT uq_templates_id_foundation UNIQUE (id, foundation);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT uq_tokens_name UNIQUE (name);
CREATE INDEX ix_arms_release ON public.arms USING btree (release);
CREATE INDEX ix_attachments_blob ON public.attachments USING btree (blob);
CREATE INDEX ix_build_parts_blob ON public.build_parts USING btree (blob);
CREATE INDEX ix_builds_digest ON public.builds USING btree (digest);
CREATE INDEX ix_builds_factors ON public.builds USING btree (factors);
CREATE INDEX ix_builds_foundation ON public.builds USING btree (foundation);
CREATE INDEX ix_foundation_names_foundation ON public.foundation_names USING btree (foundation);
CREATE INDEX ix_foundation_recipes_recipe ON public.foundation_recipes USING btree (recipe);
CREATE INDEX ix_foundations_base ON public.foundations USING btree (base);
CREATE INDEX ix_line_entries_build ON public.line_entries USING btree (build);
CREATE INDEX ix_lines_foundation ON public.lines USING btree (foundation);
CREATE INDEX ix_proofs_document ON public.proofs USING btree (document);
CREATE INDEX ix_proofs_self_test ON public.proofs USING btree (self_test);
CREATE INDEX ix_release_files_blob ON public.release_files USING btree (blob);
CREATE INDEX ix_source_files_blob ON public.source_files USING btree (blob);
CREATE INDEX ix_templates_digest ON public.templates USING btree (digest);
CREATE INDEX ix_templates_structure ON public.templates USING btree (structure);
CREATE INDEX ix_versions_source ON public.versions USING btree (source);
CREATE TRIGGER arms_refuse_delete BEFORE DELETE ON public.arms FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('arms is immutable: no DELETE');
CREATE TRIGGER arms_refuse_update BEFORE UPDATE ON public.arms FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('arms is immutable: no UPDATE');
CREATE TRIGGER attachments_refuse_update BEFORE UPDATE ON public.attachments FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('attachments is immutable: no UPDATE');
CREATE TRIGGER bases_refuse_update BEFORE UPDATE OF fingerprint, tensors, created ON public.bases FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('bases is immutable: no UPDATE');
CREATE TRIGGER blobs_refuse_update BEFORE UPDATE OF digest, size ON public.blobs FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('blobs is immutable: no UPDATE');
CREATE TRIGGER builds_refuse_update BEFORE UPDATE OF id, adapter, version, foundation, template, digest, factors, warnings, created ON public.builds FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('builds is immutable: no UPDATE');
CREATE TRIGGER channels_refuse_delete BEFORE DELETE ON public.channels FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('channels is immutable: no DELETE');
CREATE TRIGGER events_refuse_delete BEFORE DELETE ON public.events FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('events is immutable: no DELETE');
CREATE TRIGGER events_refuse_update BEFORE UPDATE ON public.events FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('events is immutable: no UPDATE');
CREATE TRIGGER foundation_tensors_refuse_update BEFORE UPDATE ON public.foundation_tensors FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('foundation_tensors is immutable: no UPDATE');
CREATE TRIGGER foundations_refuse_update BEFORE UPDATE OF digest, base, modules, created ON public.foundations FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('foundations is immutable: no UPDATE');
CREATE TRIGGER line_entries_refuse_delete BEFORE DELETE ON public.line_entries FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('line_entries is immutable: no DELETE');
CREATE TRIGGER line_entries_refuse_update BEFORE UPDATE ON public.line_entries FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('line_entries is immutable: no UPDATE');
CREATE TRIGGER lines_refuse_delete BEFORE DELETE ON public.lines FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('lines is immutable: no DELETE');
CREATE TRIGGER lines_refuse_update BEFORE UPDATE ON public.lines FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('lines is immutable: no UPDATE');
CREATE TRIGGER manifests_refuse_delete BEFORE DELETE ON public.manifests FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('manifests is immutable: no DELETE');
CREATE TRIGGER manifests_refuse_update BEFORE UPDATE ON public.manifests FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('manifests is immutable: no UPDATE');
CREATE TRIGGER proofs_refuse_update BEFORE UPDATE ON public.proofs FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('proofs is immutable: no UPDATE');
CREATE TRIGGER recipes_refuse_update BEFORE UPDATE ON public.recipes FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('recipes is immutable: no UPDATE');
CREATE TRIGGER registry_refuse_delete BEFORE DELETE ON public.registry FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('registry is immutable: no DELETE');
CREATE TRIGGER registry_refuse_update BEFORE UPDATE OF id, uuid, created ON public.registry FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('registry is immutable: no UPDATE');
CREATE TRIGGER release_files_refuse_delete BEFORE DELETE ON public.release_files FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('release_files is immutable: no DELETE');
CREATE TRIGGER release_files_refuse_update BEFORE UPDATE ON public.release_files FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('release_files is immutable: no UPDATE');
CREATE TRIGGER releases_refuse_delete BEFORE DELETE ON public.releases FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('releases is immutable: no DELETE');
CREATE TRIGGER releases_refuse_update BEFORE UPDATE ON public.releases FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('releases is immutable: no UPDATE');
CREATE TRIGGER source_files_refuse_update BEFORE UPDATE ON public.source_files FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('source_files is immutable: no UPDATE');
CREATE TRIGGER sources_refuse_update BEFORE UPDATE ON public.sources FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('sources is immutable: no UPDATE');
CREATE TRIGGER structures_refuse_update BEFORE UPDATE ON public.structures FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('structures is immutable: no UPDATE');
CREATE TRIGGER templates_refuse_update BEFORE UPDATE ON public.templates FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('templates is immutable: no UPDATE');
CREATE TRIGGER tokens_refuse_delete BEFORE DELETE ON public.tokens FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('tokens is immutable: no DELETE');
CREATE TRIGGER tokens_refuse_update BEFORE UPDATE OF id, name, scope, digest, created ON public.tokens FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('tokens is immutable: no UPDATE');
CREATE TRIGGER versions_refuse_delete BEFORE DELETE ON public.versions FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('versions is immutable: no DELETE');
CREATE TRIGGER versions_refuse_update BEFORE UPDATE OF adapter, version, source, lineage, created ON public.versions FOR EACH ROW EXECUTE FUNCTION public.ptdock_refuse('versions is immutable: no UPDATE');
ALTER TABLE ONLY public.arms
    ADD CONSTRAINT fk_arms_channel_sequence FOREIGN KEY (channel, sequence) REFERENCES public.manifests(channel, sequence) ON DELETE RESTRICT;
ALTER TABLE ONLY public.arms
    ADD CONSTRAINT fk_arms_release FOREIGN KEY (release) REFERENCES public.releases(number) ON DELETE RESTRICT;
ALTER TABLE ONLY public.attachments
    ADD CONSTRAINT fk_attachments_adapter_version FOREIGN KEY (adapter, version) REFERENCES public.versions(adapter, version) ON DELETE RESTRICT;
ALTER TABLE ONLY public.attachments
    ADD CONSTRAINT fk_attachments_blob FOREIGN KEY (blob) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.base_files
    ADD CONSTRAINT fk_base_files_base FOREIGN KEY (base) REFERENCES public.bases(fingerprint) ON DELETE RESTRICT;
ALTER TABLE ONLY public.base_files
    ADD CONSTRAINT fk_base_files_blob FOREIGN KEY (blob) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.bases
    ADD CONSTRAINT fk_bases_prompt FOREIGN KEY (prompt) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.bases
    ADD CONSTRAINT fk_bases_tensors FOREIGN KEY (tensors) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.build_parts
    ADD CONSTRAINT fk_build_parts_blob FOREIGN KEY (blob) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.build_parts
    ADD CONSTRAINT fk_build_parts_build FOREIGN KEY (build) REFERENCES public.builds(id) ON DELETE RESTRICT;
ALTER TABLE ONLY public.builds
    ADD CONSTRAINT fk_builds_adapter_version FOREIGN KEY (adapter, version) REFERENCES public.versions(adapter, version) ON DELETE RESTRICT;
ALTER TABLE ONLY public.builds
    ADD CONSTRAINT fk_builds_digest FOREIGN KEY (digest) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.builds
    ADD CONSTRAINT fk_builds_factors FOREIGN KEY (factors) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.builds
    ADD CONSTRAINT fk_builds_foundation FOREIGN KEY (foundation) REFERENCES public.foundations(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.builds
    ADD CONSTRAINT fk_builds_template_foundation FOREIGN KEY (template, foundation) REFERENCES public.templates(id, foundation) ON DELETE RESTRICT;
ALTER TABLE ONLY public.foundation_names
    ADD CONSTRAINT fk_foundation_names_foundation FOREIGN KEY (foundation) REFERENCES public.foundations(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.foundation_recipes
    ADD CONSTRAINT fk_foundation_recipes_foundation FOREIGN KEY (foundation) REFERENCES public.foundations(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.foundation_recipes
    ADD CONSTRAINT fk_foundation_recipes_recipe FOREIGN KEY (recipe) REFERENCES public.recipes(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.foundation_tensors
    ADD CONSTRAINT fk_foundation_tensors_foundation FOREIGN KEY (foundation) REFERENCES public.foundations(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.foundations
    ADD CONSTRAINT fk_foundations_base FOREIGN KEY (base) REFERENCES public.bases(fingerprint) ON DELETE RESTRICT;
ALTER TABLE ONLY public.foundations
    ADD CONSTRAINT fk_foundations_digest FOREIGN KEY (digest) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.foundations
    ADD CONSTRAINT fk_foundations_modules FOREIGN KEY (modules) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.line_entries
    ADD CONSTRAINT fk_line_entries_build_foundation_adapter FOREIGN KEY (build, foundation, adapter) REFERENCES public.builds(id, foundation, adapter) ON DELETE RESTRICT;
ALTER TABLE ONLY public.line_entries
    ADD CONSTRAINT fk_line_entries_release_foundation FOREIGN KEY (release, foundation) REFERENCES public.lines(release, foundation) ON DELETE RESTRICT;
ALTER TABLE ONLY public.lines
    ADD CONSTRAINT fk_lines_foundation FOREIGN KEY (foundation) REFERENCES public.foundations(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.lines
    ADD CONSTRAINT fk_lines_release FOREIGN KEY (release) REFERENCES public.releases(number) ON DELETE RESTRICT;
ALTER TABLE ONLY public.manifests
    ADD CONSTRAINT fk_manifests_channel FOREIGN KEY (channel) REFERENCES public.channels(name) ON DELETE RESTRICT;
ALTER TABLE ONLY public.manifests
    ADD CONSTRAINT fk_manifests_digest FOREIGN KEY (digest) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.manifests
    ADD CONSTRAINT fk_manifests_log_head FOREIGN KEY (log_head) REFERENCES public.events(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.proofs
    ADD CONSTRAINT fk_proofs_build FOREIGN KEY (build) REFERENCES public.builds(id) ON DELETE RESTRICT;
ALTER TABLE ONLY public.proofs
    ADD CONSTRAINT fk_proofs_document FOREIGN KEY (document) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.proofs
    ADD CONSTRAINT fk_proofs_self_test FOREIGN KEY (self_test) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.release_files
    ADD CONSTRAINT fk_release_files_blob FOREIGN KEY (blob) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.release_files
    ADD CONSTRAINT fk_release_files_release FOREIGN KEY (release) REFERENCES public.releases(number) ON DELETE RESTRICT;
ALTER TABLE ONLY public.releases
    ADD CONSTRAINT fk_releases_document FOREIGN KEY (document) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.source_files
    ADD CONSTRAINT fk_source_files_blob FOREIGN KEY (blob) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.source_files
    ADD CONSTRAINT fk_source_files_source FOREIGN KEY (source) REFERENCES public.sources(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.sources
    ADD CONSTRAINT fk_sources_digest FOREIGN KEY (digest) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.templates
    ADD CONSTRAINT fk_templates_foundation FOREIGN KEY (foundation) REFERENCES public.foundations(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.templates
    ADD CONSTRAINT fk_templates_hollow FOREIGN KEY (hollow) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.templates
    ADD CONSTRAINT fk_templates_relocations FOREIGN KEY (relocations) REFERENCES public.blobs(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.templates
    ADD CONSTRAINT fk_templates_structure FOREIGN KEY (structure) REFERENCES public.structures(digest) ON DELETE RESTRICT;
ALTER TABLE ONLY public.versions
    ADD CONSTRAINT fk_versions_adapter FOREIGN KEY (adapter) REFERENCES public.adapters(name) ON DELETE RESTRICT;
ALTER TABLE ONLY public.versions
    ADD CONSTRAINT fk_versions_source FOREIGN KEY (source) REFERENCES public.sources(digest) ON DELETE RESTRICT;
