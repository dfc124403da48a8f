BEGIN TRANSACTION;
CREATE TABLE adapters (
	name TEXT NOT NULL, 
	created TEXT NOT NULL, 
	CONSTRAINT pk_adapters PRIMARY KEY (name), 
	CONSTRAINT ck_adapters_name_is_name CHECK (length(name) BETWEEN 1 AND 64 AND trim(name, 'abcdefghijklmnopqrstuvwxyz0123456789._-') = '' AND trim(substr(name, 1, 1), 'abcdefghijklmnopqrstuvwxyz0123456789') = '' AND substr(name, length(name)) <> '.')
)
 STRICT

;
INSERT INTO "adapters" VALUES('pirate','2026-05-28T20:26:40.000000Z');
INSERT INTO "adapters" VALUES('json','2026-05-28T20:26:40.000000Z');
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0005');
CREATE TABLE arms (
	channel TEXT NOT NULL, 
	sequence INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	release INTEGER, 
	share_bp INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	holdout INTEGER NOT NULL, 
	CONSTRAINT pk_arms PRIMARY KEY (channel, sequence, position), 
	CONSTRAINT ck_arms_state CHECK (state IN ('open', 'halted') AND (release IS NOT NULL OR state = 'open')), 
	CONSTRAINT ck_arms_holdout CHECK (holdout = 0 OR (holdout = 1 AND release IS NULL)), 
	CONSTRAINT ck_arms_position CHECK (position >= 0), 
	CONSTRAINT ck_arms_share CHECK (share_bp BETWEEN 1 AND 10000), 
	CONSTRAINT fk_arms_channel_sequence FOREIGN KEY(channel, sequence) REFERENCES manifests (channel, sequence) ON DELETE RESTRICT, 
	CONSTRAINT fk_arms_release FOREIGN KEY(release) REFERENCES releases (number) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "arms" VALUES('stable',1,0,1,10000,'open',0);
CREATE TABLE attachments (
	adapter TEXT NOT NULL, 
	version TEXT NOT NULL, 
	name TEXT NOT NULL, 
	blob TEXT NOT NULL, 
	CONSTRAINT pk_attachments PRIMARY KEY (adapter, version, name), 
	CONSTRAINT ck_attachments_name CHECK (name <> ''), 
	CONSTRAINT fk_attachments_adapter_version FOREIGN KEY(adapter, version) REFERENCES versions (adapter, version) ON DELETE RESTRICT, 
	CONSTRAINT fk_attachments_blob FOREIGN KEY(blob) REFERENCES blobs (digest) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "attachments" VALUES('pirate','1.0.0','README.md','sha256:40f8e16c482c2c9b58dd917f82612a4366913006b4d8241f55cc75db07b1f4fe');
INSERT INTO "attachments" VALUES('json','1.0.0','README.md','sha256:6107556c987405b20d45f019cb635770660b9b0f25b39262ce3343fd905cde97');
CREATE TABLE base_files (
	base TEXT NOT NULL, 
	name TEXT NOT NULL, 
	blob TEXT NOT NULL, 
	CONSTRAINT pk_base_files PRIMARY KEY (base, name), 
	CONSTRAINT ck_base_files_name CHECK (name <> ''), 
	CONSTRAINT fk_base_files_base FOREIGN KEY(base) REFERENCES bases (fingerprint) ON DELETE RESTRICT, 
	CONSTRAINT fk_base_files_blob FOREIGN KEY(blob) REFERENCES blobs (digest) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "base_files" VALUES('sha256:cae662172fd450bb0cd710a769079c05bfc5d8e35efa6576edc7d0377afdd4a2','config.json','sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a');
INSERT INTO "base_files" VALUES('sha256:cae662172fd450bb0cd710a769079c05bfc5d8e35efa6576edc7d0377afdd4a2','tokenizer.json','sha256:f38b8a0d18d3219d24ec4ab6d4012df644ef189cd25ea43ab5ea2304a410f7cb');
CREATE TABLE bases (
	fingerprint TEXT NOT NULL, 
	tensors TEXT NOT NULL, 
	hint TEXT NOT NULL, 
	prompt TEXT, 
	created TEXT NOT NULL, 
	CONSTRAINT pk_bases PRIMARY KEY (fingerprint), 
	CONSTRAINT ck_bases_fingerprint_is_digest CHECK (length(fingerprint) = 71 AND substr(fingerprint, 1, 7) = 'sha256:' AND trim(substr(fingerprint, 8), '0123456789abcdef') = ''), 
	CONSTRAINT fk_bases_tensors FOREIGN KEY(tensors) REFERENCES blobs (digest) ON DELETE RESTRICT, 
	CONSTRAINT fk_bases_prompt FOREIGN KEY(prompt) REFERENCES blobs (digest) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "bases" VALUES('sha256:cae662172fd450bb0cd710a769079c05bfc5d8e35efa6576edc7d0377afdd4a2','sha256:cae662172fd450bb0cd710a769079c05bfc5d8e35efa6576edc7d0377afdd4a2','/checkpoint',NULL,'2026-05-28T20:26:40.000000Z');
CREATE TABLE blobs (
	digest TEXT NOT NULL, 
	size INTEGER NOT NULL, 
	condemned_at TEXT, 
	CONSTRAINT pk_blobs PRIMARY KEY (digest), 
	CONSTRAINT ck_blobs_digest_is_digest CHECK (length(digest) = 71 AND substr(digest, 1, 7) = 'sha256:' AND trim(substr(digest, 8), '0123456789abcdef') = ''), 
	CONSTRAINT ck_blobs_size CHECK (size >= 0)
)
 STRICT

;
INSERT INTO "blobs" VALUES('sha256:cae662172fd450bb0cd710a769079c05bfc5d8e35efa6576edc7d0377afdd4a2',4,NULL);
INSERT INTO "blobs" VALUES('sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a',2,NULL);
INSERT INTO "blobs" VALUES('sha256:f38b8a0d18d3219d24ec4ab6d4012df644ef189cd25ea43ab5ea2304a410f7cb',17,NULL);
INSERT INTO "blobs" VALUES('sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f',1312,NULL);
INSERT INTO "blobs" VALUES('sha256:5ae01c606803df72cc5849afa1ab6436c8358d7c941154525451fe9039bc469d',5376,NULL);
INSERT INTO "blobs" VALUES('sha256:1b82c56d51a48a2cbb77ac8c287b111a78fe8fe9a876e7e0712aaf9c0e532dd5',146,NULL);
INSERT INTO "blobs" VALUES('sha256:9659bc9eb3a60cbc7a0720183a1fd0156f8c48df1fd375b410ca442c054505cc',1607,NULL);
INSERT INTO "blobs" VALUES('sha256:82ce145b48cd082098483c6507fc941f36568e995536c6c8eae7173b01ab434d',154,NULL);
INSERT INTO "blobs" VALUES('sha256:790f1c4d00a83dd3f0142e575fb9cdee816ff062ee18cd8e6330e25f4cb20f87',5376,NULL);
INSERT INTO "blobs" VALUES('sha256:0658d2cf932e81f214530c7e155a7509389de5c17f0ee179f5b0c150996f4c73',128,NULL);
INSERT INTO "blobs" VALUES('sha256:c4538efc9fc4506986a04320cc82527dd34ca4366fcf99ec092a6a9351981c78',260,NULL);
INSERT INTO "blobs" VALUES('sha256:2e6839f29b1ea4ae7bedab9223832ba40e51fd637755656065729aca231e2c86',3,NULL);
INSERT INTO "blobs" VALUES('sha256:40f8e16c482c2c9b58dd917f82612a4366913006b4d8241f55cc75db07b1f4fe',9,NULL);
INSERT INTO "blobs" VALUES('sha256:24306954f5ae9f043b7be7a7cb8dd08cd8e7daa4354206f663dad9f9c07349d3',5376,NULL);
INSERT INTO "blobs" VALUES('sha256:03f787324c220009a75598de9e60dab37f778c9a43e4d9a496b4980e8c929dc8',128,NULL);
INSERT INTO "blobs" VALUES('sha256:8e4d17963b37d928a1a05029c3268ea8daf8ca9205621567639af12e7ec44be4',260,NULL);
INSERT INTO "blobs" VALUES('sha256:6107556c987405b20d45f019cb635770660b9b0f25b39262ce3343fd905cde97',8,NULL);
INSERT INTO "blobs" VALUES('sha256:0c096108a87a4cfcbec852bb1c0140bf5474bca17b19ca51d0e0936749825d5d',927,NULL);
INSERT INTO "blobs" VALUES('sha256:7853b8f6326a1f9b54289c83c50908cd7a9ba0c7676467686015905ceabed764',420,NULL);
INSERT INTO "blobs" VALUES('sha256:c46f99dd96d4cacc1b993be36ac524084cc443beb8e981defdeb82fcd1ef9999',486,NULL);
CREATE TABLE build_parts (
	build INTEGER NOT NULL, 
	role TEXT NOT NULL, 
	blob TEXT NOT NULL, 
	CONSTRAINT pk_build_parts PRIMARY KEY (build, role), 
	CONSTRAINT ck_build_parts_role CHECK (role IN ('prompt', 'wire', 'wire_table', 'self_test')), 
	CONSTRAINT fk_build_parts_blob FOREIGN KEY(blob) REFERENCES blobs (digest) ON DELETE RESTRICT, 
	CONSTRAINT fk_build_parts_build FOREIGN KEY(build) REFERENCES builds (id) ON DELETE RESTRICT
)
 STRICT

;
CREATE TABLE builds (
	id INTEGER NOT NULL, 
	adapter TEXT NOT NULL, 
	version TEXT NOT NULL, 
	foundation TEXT NOT NULL, 
	template INTEGER NOT NULL, 
	digest TEXT NOT NULL, 
	factors TEXT NOT NULL, 
	warnings TEXT NOT NULL, 
	created TEXT NOT NULL, 
	revoked TEXT, 
	revoked_at TEXT, 
	CONSTRAINT pk_builds PRIMARY KEY (id), 
	CONSTRAINT ck_builds_revocation CHECK ((revoked IS NULL) = (revoked_at IS NULL)), 
	CONSTRAINT fk_builds_adapter_version FOREIGN KEY(adapter, version) REFERENCES versions (adapter, version) ON DELETE RESTRICT, 
	CONSTRAINT fk_builds_digest FOREIGN KEY(digest) REFERENCES blobs (digest) ON DELETE RESTRICT, 
	CONSTRAINT fk_builds_factors FOREIGN KEY(factors) REFERENCES blobs (digest) ON DELETE RESTRICT, 
	CONSTRAINT fk_builds_foundation FOREIGN KEY(foundation) REFERENCES foundations (digest) ON DELETE RESTRICT, 
	CONSTRAINT fk_builds_template_foundation FOREIGN KEY(template, foundation) REFERENCES templates (id, foundation) ON DELETE RESTRICT, 
	CONSTRAINT uq_builds_adapter_version_template UNIQUE (adapter, version, template), 
	CONSTRAINT uq_builds_id_foundation_adapter UNIQUE (id, foundation, adapter)
)
 STRICT

;
INSERT INTO "builds" VALUES(1,'pirate','1.0.0','sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f',2,'sha256:790f1c4d00a83dd3f0142e575fb9cdee816ff062ee18cd8e6330e25f4cb20f87','sha256:0658d2cf932e81f214530c7e155a7509389de5c17f0ee179f5b0c150996f4c73','["base not pinned"]','2026-05-28T20:26:40.000000Z',NULL,NULL);
INSERT INTO "builds" VALUES(2,'json','1.0.0','sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f',2,'sha256:24306954f5ae9f043b7be7a7cb8dd08cd8e7daa4354206f663dad9f9c07349d3','sha256:03f787324c220009a75598de9e60dab37f778c9a43e4d9a496b4980e8c929dc8','["base not pinned"]','2026-05-28T20:26:40.000000Z',NULL,NULL);
CREATE TABLE channels (
	name TEXT NOT NULL, 
	salt TEXT NOT NULL, 
	settings TEXT NOT NULL, 
	created TEXT NOT NULL, 
	deleted_at TEXT, 
	CONSTRAINT pk_channels PRIMARY KEY (name), 
	CONSTRAINT ck_channels_name_is_name CHECK (length(name) BETWEEN 1 AND 64 AND trim(name, 'abcdefghijklmnopqrstuvwxyz0123456789._-') = '' AND trim(substr(name, 1, 1), 'abcdefghijklmnopqrstuvwxyz0123456789') = '' AND substr(name, length(name)) <> '.'), 
	CONSTRAINT ck_channels_salt CHECK (length(salt) = 32 AND trim(salt, '0123456789abcdef') = '')
)
 STRICT

;
INSERT INTO "channels" VALUES('stable','374a29496242778b7006765365567e47','{"lifetime_seconds":2592000,"poll_seconds":14400}','2026-05-28T20:26:40.000000Z',NULL);
CREATE TABLE events (
	id INTEGER NOT NULL, 
	at TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	action TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	"before" TEXT, 
	"after" TEXT, 
	prev TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	CONSTRAINT pk_events PRIMARY KEY (id), 
	CONSTRAINT ck_events_digest_is_digest CHECK (length(digest) = 71 AND substr(digest, 1, 7) = 'sha256:' AND trim(substr(digest, 8), '0123456789abcdef') = ''), 
	CONSTRAINT ck_events_prev_is_digest CHECK (length(prev) = 71 AND substr(prev, 1, 7) = 'sha256:' AND trim(substr(prev, 8), '0123456789abcdef') = ''), 
	CONSTRAINT ck_events_id CHECK (id >= 1), 
	CONSTRAINT uq_events_digest UNIQUE (digest), 
	CONSTRAINT uq_events_prev UNIQUE (prev)
)
 STRICT

;
INSERT INTO "events" VALUES(1,'2026-05-28T20:26:40.000000Z','tester','registry.init','62efeb96-0c07-4f44-81ec-377a1c224570',NULL,NULL,'sha256:d3b69d4a341ac4c31d5149fba610b5982fd1a90a95d62b678eff01380af8024f','sha256:dde36eff7959fb270565d5316feb2fc48f491d7519a0a2013425c933282ddd64');
INSERT INTO "events" VALUES(2,'2026-05-28T20:26:40.000000Z','tester','base.add','sha256:cae662172fd450bb0cd710a769079c05bfc5d8e35efa6576edc7d0377afdd4a2',NULL,'{"files":{"config.json":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","tokenizer.json":"sha256:f38b8a0d18d3219d24ec4ab6d4012df644ef189cd25ea43ab5ea2304a410f7cb"},"hint":"/checkpoint","prompt":null}','sha256:dde36eff7959fb270565d5316feb2fc48f491d7519a0a2013425c933282ddd64','sha256:471d3d8d82110cbbe73efaeae44175e35d6a978caec77d830968feb27bf34bdf');
INSERT INTO "events" VALUES(3,'2026-05-28T20:26:40.000000Z','tester','foundation.add','sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f',NULL,'{"base":"sha256:cae662172fd450bb0cd710a769079c05bfc5d8e35efa6576edc7d0377afdd4a2","modules":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','sha256:471d3d8d82110cbbe73efaeae44175e35d6a978caec77d830968feb27bf34bdf','sha256:61d12a340edf243d0387127594e67bc38edc2900778aa5ea0af1a8badbc786a8');
INSERT INTO "events" VALUES(4,'2026-05-28T20:26:40.000000Z','tester','foundation.recipe','sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f',NULL,'{"other":0,"quantization":"none"}','sha256:61d12a340edf243d0387127594e67bc38edc2900778aa5ea0af1a8badbc786a8','sha256:751bac3dedd0f57e880ccf4d1f824267fb5bd9a48ef1a51f60731981b5bfdab8');
INSERT INTO "events" VALUES(5,'2026-05-28T20:26:40.000000Z','tester','foundation.name','f1',NULL,'"sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f"','sha256:751bac3dedd0f57e880ccf4d1f824267fb5bd9a48ef1a51f60731981b5bfdab8','sha256:d10a5415cef7f63ebc8c335274e21761587506208cfa3e96e711286e7daa446d');
INSERT INTO "events" VALUES(6,'2026-05-28T20:26:40.000000Z','tester','template.add','sha256:5ae01c606803df72cc5849afa1ab6436c8358d7c941154525451fe9039bc469d',NULL,'{"context":512,"foundation":"sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f","structure":"sha256:bb476d1279ed6aa83f832d75ef15b019337a45f6799aa15e1ca659b393d76b4b"}','sha256:d10a5415cef7f63ebc8c335274e21761587506208cfa3e96e711286e7daa446d','sha256:32947418444a8c622afea2d42182bda03b567a9e783968334aba4538be65e277');
INSERT INTO "events" VALUES(7,'2026-05-28T20:26:40.000000Z','tester','template.add','sha256:35633b04f3325db7d7f31c70bda01a00ae217d0ca1597a37669c2f8e350ca839',NULL,'{"context":512,"foundation":"sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f","structure":"sha256:b0924d4676c970614a834352fc20a0f3571f7a81b61e7b9ce119d64b5e987d3f"}','sha256:32947418444a8c622afea2d42182bda03b567a9e783968334aba4538be65e277','sha256:f2a8a740fd62d5c92b3c1321050cb32a8f96102d80bce933efd44611490ea892');
INSERT INTO "events" VALUES(8,'2026-05-28T20:26:40.000000Z','tester','adapter.publish','pirate@1.0.0',NULL,'{"build":"sha256:790f1c4d00a83dd3f0142e575fb9cdee816ff062ee18cd8e6330e25f4cb20f87","factors":"sha256:0658d2cf932e81f214530c7e155a7509389de5c17f0ee179f5b0c150996f4c73","foundation":"sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f","source":"sha256:c4538efc9fc4506986a04320cc82527dd34ca4366fcf99ec092a6a9351981c78","template":"sha256:35633b04f3325db7d7f31c70bda01a00ae217d0ca1597a37669c2f8e350ca839"}','sha256:f2a8a740fd62d5c92b3c1321050cb32a8f96102d80bce933efd44611490ea892','sha256:f2b2b5e3b322a031e94057a42b12eebbc9e29086fe805d29a8142b913fc3ddae');
INSERT INTO "events" VALUES(9,'2026-05-28T20:26:40.000000Z','tester','adapter.publish','json@1.0.0',NULL,'{"build":"sha256:24306954f5ae9f043b7be7a7cb8dd08cd8e7daa4354206f663dad9f9c07349d3","factors":"sha256:03f787324c220009a75598de9e60dab37f778c9a43e4d9a496b4980e8c929dc8","foundation":"sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f","source":"sha256:8e4d17963b37d928a1a05029c3268ea8daf8ca9205621567639af12e7ec44be4","template":"sha256:35633b04f3325db7d7f31c70bda01a00ae217d0ca1597a37669c2f8e350ca839"}','sha256:f2b2b5e3b322a031e94057a42b12eebbc9e29086fe805d29a8142b913fc3ddae','sha256:5f937e1aa2275c28cf9c271db6b9f2c4c1d9a9e3434e1b8be1e2c5ef8f2c46ad');
INSERT INTO "events" VALUES(10,'2026-05-28T20:26:40.000000Z','tester','channel.create','channel stable',NULL,'{"lifetime_seconds":2592000,"poll_seconds":14400}','sha256:5f937e1aa2275c28cf9c271db6b9f2c4c1d9a9e3434e1b8be1e2c5ef8f2c46ad','sha256:8e0d580a19087bd85b5b71bf6c2c3951a0f58e4a7241daa7daf5de9786ae77a8');
INSERT INTO "events" VALUES(11,'2026-05-28T20:26:40.000000Z','tester','release.create','release 1',NULL,'{"adapters":["json@1.0.0","pirate@1.0.0"],"document":"sha256:0c096108a87a4cfcbec852bb1c0140bf5474bca17b19ca51d0e0936749825d5d","offer":{"channel":"stable","share_bp":10000}}','sha256:8e0d580a19087bd85b5b71bf6c2c3951a0f58e4a7241daa7daf5de9786ae77a8','sha256:27e6a4a3d5df0795e3541060e55dd0ebcc5d3f3a427404373e56319eb5ac39b0');
INSERT INTO "events" VALUES(12,'2026-05-28T20:26:40.000000Z','tester','adapter.yank','json@1.0.0',NULL,'"kept"','sha256:27e6a4a3d5df0795e3541060e55dd0ebcc5d3f3a427404373e56319eb5ac39b0','sha256:4ba4ebf064e82d6a365456627df0e48e7c8e015e7c7e240bec814a19232abefe');
CREATE TABLE foundation_names (
	name TEXT NOT NULL, 
	foundation TEXT NOT NULL, 
	CONSTRAINT pk_foundation_names PRIMARY KEY (name), 
	CONSTRAINT ck_foundation_names_name_is_name CHECK (length(name) BETWEEN 1 AND 64 AND trim(name, 'abcdefghijklmnopqrstuvwxyz0123456789._-') = '' AND trim(substr(name, 1, 1), 'abcdefghijklmnopqrstuvwxyz0123456789') = '' AND substr(name, length(name)) <> '.'), 
	CONSTRAINT fk_foundation_names_foundation FOREIGN KEY(foundation) REFERENCES foundations (digest) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "foundation_names" VALUES('f1','sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f');
CREATE TABLE foundation_recipes (
	foundation TEXT NOT NULL, 
	recipe TEXT NOT NULL, 
	created TEXT NOT NULL, 
	CONSTRAINT pk_foundation_recipes PRIMARY KEY (foundation, recipe), 
	CONSTRAINT fk_foundation_recipes_foundation FOREIGN KEY(foundation) REFERENCES foundations (digest) ON DELETE RESTRICT, 
	CONSTRAINT fk_foundation_recipes_recipe FOREIGN KEY(recipe) REFERENCES recipes (digest) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "foundation_recipes" VALUES('sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f','sha256:0ed6d08ac7f16cfbab8c0cd24a2708b4ecf4d74942a7f0c333183dee5fa72d96','2026-05-28T20:26:40.000000Z');
CREATE TABLE foundation_tensors (
	foundation TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	names TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	size INTEGER NOT NULL, 
	"offset" INTEGER NOT NULL, 
	dtype TEXT NOT NULL, 
	shape TEXT NOT NULL, 
	CONSTRAINT pk_foundation_tensors PRIMARY KEY (foundation, "key"), 
	CONSTRAINT ck_foundation_tensors_key CHECK (key <> ''), 
	CONSTRAINT ck_foundation_tensors_digest_is_digest CHECK (length(digest) = 71 AND substr(digest, 1, 7) = 'sha256:' AND trim(substr(digest, 8), '0123456789abcdef') = ''), 
	CONSTRAINT ck_foundation_tensors_extent CHECK ("offset" >= 0 AND size >= 0), 
	CONSTRAINT fk_foundation_tensors_foundation FOREIGN KEY(foundation) REFERENCES foundations (digest) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "foundation_tensors" VALUES('sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f','embed.weight','[]','sha256:8c29e314b7722bb987f69a1c442808c30543ae296c347daf3b862b05ebb1f650',512,512,'F32','[16,8]');
INSERT INTO "foundation_tensors" VALUES('sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f','2f09208ffbfda5a1064bed2b91808fd4c14878301771038f12c84e1b32d15aa6','[]','sha256:2f09208ffbfda5a1064bed2b91808fd4c14878301771038f12c84e1b32d15aa6',256,1024,'U8','[256]');
INSERT INTO "foundation_tensors" VALUES('sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f','07233d89d37214009f6ed0371f88cecb5ad15520fa5a826916601e7c40a879c9','[]','sha256:07233d89d37214009f6ed0371f88cecb5ad15520fa5a826916601e7c40a879c9',32,1280,'U8','[32]');
CREATE TABLE foundations (
	digest TEXT NOT NULL, 
	base TEXT NOT NULL, 
	modules TEXT NOT NULL, 
	created TEXT NOT NULL, 
	CONSTRAINT pk_foundations PRIMARY KEY (digest), 
	CONSTRAINT fk_foundations_base FOREIGN KEY(base) REFERENCES bases (fingerprint) ON DELETE RESTRICT, 
	CONSTRAINT fk_foundations_digest FOREIGN KEY(digest) REFERENCES blobs (digest) ON DELETE RESTRICT, 
	CONSTRAINT fk_foundations_modules FOREIGN KEY(modules) REFERENCES blobs (digest) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "foundations" VALUES('sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f','sha256:cae662172fd450bb0cd710a769079c05bfc5d8e35efa6576edc7d0377afdd4a2','sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a','2026-05-28T20:26:40.000000Z');
CREATE TABLE line_entries (
	release INTEGER NOT NULL, 
	foundation TEXT NOT NULL, 
	adapter TEXT NOT NULL, 
	build INTEGER NOT NULL, 
	CONSTRAINT pk_line_entries PRIMARY KEY (release, foundation, adapter), 
	CONSTRAINT fk_line_entries_build_foundation_adapter FOREIGN KEY(build, foundation, adapter) REFERENCES builds (id, foundation, adapter) ON DELETE RESTRICT, 
	CONSTRAINT fk_line_entries_release_foundation FOREIGN KEY(release, foundation) REFERENCES lines (release, foundation) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "line_entries" VALUES(1,'sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f','json',2);
INSERT INTO "line_entries" VALUES(1,'sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f','pirate',1);
CREATE TABLE lines (
	release INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	foundation TEXT NOT NULL, 
	CONSTRAINT pk_lines PRIMARY KEY (release, position), 
	CONSTRAINT ck_lines_position CHECK (position >= 0), 
	CONSTRAINT fk_lines_foundation FOREIGN KEY(foundation) REFERENCES foundations (digest) ON DELETE RESTRICT, 
	CONSTRAINT fk_lines_release FOREIGN KEY(release) REFERENCES releases (number) ON DELETE RESTRICT, 
	CONSTRAINT uq_lines_release_foundation UNIQUE (release, foundation)
)
 STRICT

;
INSERT INTO "lines" VALUES(1,0,'sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f');
CREATE TABLE manifests (
	channel TEXT NOT NULL, 
	sequence INTEGER NOT NULL, 
	digest TEXT NOT NULL, 
	issued INTEGER NOT NULL, 
	expires INTEGER NOT NULL, 
	log_head TEXT NOT NULL, 
	CONSTRAINT pk_manifests PRIMARY KEY (channel, sequence), 
	CONSTRAINT ck_manifests_lifetime CHECK (expires > issued), 
	CONSTRAINT ck_manifests_sequence CHECK (sequence >= 1), 
	CONSTRAINT fk_manifests_channel FOREIGN KEY(channel) REFERENCES channels (name) ON DELETE RESTRICT, 
	CONSTRAINT fk_manifests_digest FOREIGN KEY(digest) REFERENCES blobs (digest) ON DELETE RESTRICT, 
	CONSTRAINT fk_manifests_log_head FOREIGN KEY(log_head) REFERENCES events (digest) ON DELETE RESTRICT, 
	CONSTRAINT uq_manifests_digest UNIQUE (digest)
)
 STRICT

;
INSERT INTO "manifests" VALUES('stable',1,'sha256:c46f99dd96d4cacc1b993be36ac524084cc443beb8e981defdeb82fcd1ef9999',1780000000,1782592000,'sha256:27e6a4a3d5df0795e3541060e55dd0ebcc5d3f3a427404373e56319eb5ac39b0');
CREATE TABLE proofs (
	id INTEGER NOT NULL, 
	build INTEGER NOT NULL, 
	document TEXT NOT NULL, 
	self_test TEXT, 
	created TEXT NOT NULL, 
	CONSTRAINT pk_proofs PRIMARY KEY (id), 
	CONSTRAINT fk_proofs_build FOREIGN KEY(build) REFERENCES builds (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_proofs_document FOREIGN KEY(document) REFERENCES blobs (digest) ON DELETE RESTRICT, 
	CONSTRAINT fk_proofs_self_test FOREIGN KEY(self_test) REFERENCES blobs (digest) ON DELETE RESTRICT, 
	CONSTRAINT uq_proofs_build_document UNIQUE (build, document)
)
 STRICT

;
CREATE TABLE recipes (
	digest TEXT NOT NULL, 
	document TEXT NOT NULL, 
	CONSTRAINT pk_recipes PRIMARY KEY (digest), 
	CONSTRAINT ck_recipes_digest_is_digest CHECK (length(digest) = 71 AND substr(digest, 1, 7) = 'sha256:' AND trim(substr(digest, 8), '0123456789abcdef') = '')
)
 STRICT

;
INSERT INTO "recipes" VALUES('sha256:0ed6d08ac7f16cfbab8c0cd24a2708b4ecf4d74942a7f0c333183dee5fa72d96','{"other":0,"quantization":"none"}');
CREATE TABLE registry (
	id INTEGER NOT NULL, 
	uuid TEXT NOT NULL, 
	created TEXT NOT NULL, 
	CONSTRAINT pk_registry PRIMARY KEY (id), 
	CONSTRAINT ck_registry_single CHECK (id = 1), 
	CONSTRAINT ck_registry_uuid CHECK (length(uuid) = 36)
)
 STRICT

;
INSERT INTO "registry" VALUES(1,'62efeb96-0c07-4f44-81ec-377a1c224570','2026-05-28T20:26:40.000000Z');
CREATE TABLE release_files (
	release INTEGER NOT NULL, 
	blob TEXT NOT NULL, 
	CONSTRAINT pk_release_files PRIMARY KEY (release, blob), 
	CONSTRAINT fk_release_files_release FOREIGN KEY(release) REFERENCES releases (number) ON DELETE RESTRICT, 
	CONSTRAINT fk_release_files_blob FOREIGN KEY(blob) REFERENCES blobs (digest) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "release_files" VALUES(1,'sha256:5ae01c606803df72cc5849afa1ab6436c8358d7c941154525451fe9039bc469d');
INSERT INTO "release_files" VALUES(1,'sha256:7853b8f6326a1f9b54289c83c50908cd7a9ba0c7676467686015905ceabed764');
INSERT INTO "release_files" VALUES(1,'sha256:f38b8a0d18d3219d24ec4ab6d4012df644ef189cd25ea43ab5ea2304a410f7cb');
CREATE TABLE releases (
	number INTEGER NOT NULL, 
	document TEXT NOT NULL, 
	holes INTEGER NOT NULL, 
	created TEXT NOT NULL, 
	CONSTRAINT pk_releases PRIMARY KEY (number), 
	CONSTRAINT ck_releases_holes CHECK (holes IN (0, 1)), 
	CONSTRAINT ck_releases_number CHECK (number >= 1), 
	CONSTRAINT fk_releases_document FOREIGN KEY(document) REFERENCES blobs (digest) ON DELETE RESTRICT, 
	CONSTRAINT uq_releases_document UNIQUE (document)
)
 STRICT

;
INSERT INTO "releases" VALUES(1,'sha256:0c096108a87a4cfcbec852bb1c0140bf5474bca17b19ca51d0e0936749825d5d',0,'2026-05-28T20:26:40.000000Z');
CREATE TABLE source_files (
	source TEXT NOT NULL, 
	name TEXT NOT NULL, 
	blob TEXT NOT NULL, 
	CONSTRAINT pk_source_files PRIMARY KEY (source, name), 
	CONSTRAINT ck_source_files_name CHECK (name <> ''), 
	CONSTRAINT fk_source_files_blob FOREIGN KEY(blob) REFERENCES blobs (digest) ON DELETE RESTRICT, 
	CONSTRAINT fk_source_files_source FOREIGN KEY(source) REFERENCES sources (digest) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "source_files" VALUES('sha256:c4538efc9fc4506986a04320cc82527dd34ca4366fcf99ec092a6a9351981c78','adapter_config.json','sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a');
INSERT INTO "source_files" VALUES('sha256:c4538efc9fc4506986a04320cc82527dd34ca4366fcf99ec092a6a9351981c78','adapter_model.safetensors','sha256:2e6839f29b1ea4ae7bedab9223832ba40e51fd637755656065729aca231e2c86');
INSERT INTO "source_files" VALUES('sha256:8e4d17963b37d928a1a05029c3268ea8daf8ca9205621567639af12e7ec44be4','adapter_config.json','sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a');
INSERT INTO "source_files" VALUES('sha256:8e4d17963b37d928a1a05029c3268ea8daf8ca9205621567639af12e7ec44be4','adapter_model.safetensors','sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a');
CREATE TABLE sources (
	digest TEXT NOT NULL, 
	CONSTRAINT pk_sources PRIMARY KEY (digest), 
	CONSTRAINT fk_sources_digest FOREIGN KEY(digest) REFERENCES blobs (digest) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "sources" VALUES('sha256:c4538efc9fc4506986a04320cc82527dd34ca4366fcf99ec092a6a9351981c78');
INSERT INTO "sources" VALUES('sha256:8e4d17963b37d928a1a05029c3268ea8daf8ca9205621567639af12e7ec44be4');
CREATE TABLE structures (
	digest TEXT NOT NULL, 
	document TEXT NOT NULL, 
	CONSTRAINT pk_structures PRIMARY KEY (digest), 
	CONSTRAINT ck_structures_digest_is_digest CHECK (length(digest) = 71 AND substr(digest, 1, 7) = 'sha256:' AND trim(substr(digest, 8), '0123456789abcdef') = '')
)
 STRICT

;
INSERT INTO "structures" VALUES('sha256:bb476d1279ed6aa83f832d75ef15b019337a45f6799aa15e1ca659b393d76b4b','{"equal":[],"modules":{},"schema":1}');
INSERT INTO "structures" VALUES('sha256:b0924d4676c970614a834352fc20a0f3571f7a81b61e7b9ce119d64b5e987d3f','{"equal":[],"modules":{"factor":{"lora":8}},"schema":1}');
CREATE TABLE templates (
	id INTEGER NOT NULL, 
	digest TEXT NOT NULL, 
	foundation TEXT NOT NULL, 
	structure TEXT NOT NULL, 
	context INTEGER NOT NULL, 
	graph INTEGER NOT NULL, 
	executorch TEXT NOT NULL, 
	hollow TEXT NOT NULL, 
	relocations TEXT NOT NULL, 
	program_size INTEGER NOT NULL, 
	runtime TEXT NOT NULL, 
	kv_cache_bytes INTEGER NOT NULL, 
	created TEXT NOT NULL, 
	CONSTRAINT pk_templates PRIMARY KEY (id), 
	CONSTRAINT ck_templates_digest_is_digest CHECK (length(digest) = 71 AND substr(digest, 1, 7) = 'sha256:' AND trim(substr(digest, 8), '0123456789abcdef') = ''), 
	CONSTRAINT ck_templates_sizes CHECK (context >= 1 AND graph >= 0 AND program_size >= 0 AND kv_cache_bytes >= 0), 
	CONSTRAINT fk_templates_foundation FOREIGN KEY(foundation) REFERENCES foundations (digest) ON DELETE RESTRICT, 
	CONSTRAINT fk_templates_hollow FOREIGN KEY(hollow) REFERENCES blobs (digest) ON DELETE RESTRICT, 
	CONSTRAINT fk_templates_relocations FOREIGN KEY(relocations) REFERENCES blobs (digest) ON DELETE RESTRICT, 
	CONSTRAINT fk_templates_structure FOREIGN KEY(structure) REFERENCES structures (digest) ON DELETE RESTRICT, 
	CONSTRAINT uq_templates_foundation_structure_context_graph_executorch UNIQUE (foundation, structure, context, graph, executorch), 
	CONSTRAINT uq_templates_id_foundation UNIQUE (id, foundation)
)
 STRICT

;
INSERT INTO "templates" VALUES(1,'sha256:5ae01c606803df72cc5849afa1ab6436c8358d7c941154525451fe9039bc469d','sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f','sha256:bb476d1279ed6aa83f832d75ef15b019337a45f6799aa15e1ca659b393d76b4b',512,1,'1.5.1','sha256:5ae01c606803df72cc5849afa1ab6436c8358d7c941154525451fe9039bc469d','sha256:1b82c56d51a48a2cbb77ac8c287b111a78fe8fe9a876e7e0712aaf9c0e532dd5',5376,'{"backends":["XnnpackBackend"],"guaranteed":[1,6],"minimum":[1,5],"operators":[]}',1024,'2026-05-28T20:26:40.000000Z');
INSERT INTO "templates" VALUES(2,'sha256:35633b04f3325db7d7f31c70bda01a00ae217d0ca1597a37669c2f8e350ca839','sha256:28f0d00ee7c396f0a6837a6ca42870d9ad4e05b1efa764a9c3af5fbdaac2e88f','sha256:b0924d4676c970614a834352fc20a0f3571f7a81b61e7b9ce119d64b5e987d3f',512,1,'1.5.1','sha256:9659bc9eb3a60cbc7a0720183a1fd0156f8c48df1fd375b410ca442c054505cc','sha256:82ce145b48cd082098483c6507fc941f36568e995536c6c8eae7173b01ab434d',5376,'{"backends":["XnnpackBackend"],"guaranteed":[1,6],"minimum":[1,5],"operators":[]}',1024,'2026-05-28T20:26:40.000000Z');
CREATE TABLE tokens (
	id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	scope TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	created TEXT NOT NULL, 
	revoked_at TEXT, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT ck_tokens_digest_is_digest CHECK (length(digest) = 71 AND substr(digest, 1, 7) = 'sha256:' AND trim(substr(digest, 8), '0123456789abcdef') = ''), 
	CONSTRAINT ck_tokens_name_is_name CHECK (length(name) BETWEEN 1 AND 64 AND trim(name, 'abcdefghijklmnopqrstuvwxyz0123456789._-') = '' AND trim(substr(name, 1, 1), 'abcdefghijklmnopqrstuvwxyz0123456789') = '' AND substr(name, length(name)) <> '.'), 
	CONSTRAINT ck_tokens_id CHECK (length(id) = 16 AND trim(id, '0123456789abcdef') = ''), 
	CONSTRAINT ck_tokens_scope CHECK (scope IN ('publish', 'release', 'admin')), 
	CONSTRAINT uq_tokens_name UNIQUE (name)
)
 STRICT

;
CREATE TABLE versions (
	adapter TEXT NOT NULL, 
	version TEXT NOT NULL, 
	source TEXT NOT NULL, 
	lineage TEXT NOT NULL, 
	created TEXT NOT NULL, 
	yanked TEXT, 
	yanked_at TEXT, 
	CONSTRAINT pk_versions PRIMARY KEY (adapter, version), 
	CONSTRAINT ck_versions_version_is_semver CHECK (length(version) BETWEEN 5 AND 255 AND trim(version, 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+-') = ''), 
	CONSTRAINT ck_versions_yank CHECK ((yanked IS NULL) = (yanked_at IS NULL)), 
	CONSTRAINT fk_versions_adapter FOREIGN KEY(adapter) REFERENCES adapters (name) ON DELETE RESTRICT, 
	CONSTRAINT fk_versions_source FOREIGN KEY(source) REFERENCES sources (digest) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "versions" VALUES('pirate','1.0.0','sha256:c4538efc9fc4506986a04320cc82527dd34ca4366fcf99ec092a6a9351981c78','{"run":"arr"}','2026-05-28T20:26:40.000000Z',NULL,NULL);
INSERT INTO "versions" VALUES('json','1.0.0','sha256:8e4d17963b37d928a1a05029c3268ea8daf8ca9205621567639af12e7ec44be4','{"run":"{}"}','2026-05-28T20:26:40.000000Z','kept','2026-05-28T20:26:40.000000Z');
CREATE INDEX ix_arms_release ON arms (release);
CREATE INDEX ix_foundations_base ON foundations (base);
CREATE INDEX ix_source_files_blob ON source_files (blob);
CREATE INDEX ix_versions_source ON versions (source);
CREATE INDEX ix_attachments_blob ON attachments (blob);
CREATE INDEX ix_foundation_names_foundation ON foundation_names (foundation);
CREATE INDEX ix_foundation_recipes_recipe ON foundation_recipes (recipe);
CREATE INDEX ix_lines_foundation ON lines (foundation);
CREATE INDEX ix_templates_digest ON templates (digest);
CREATE INDEX ix_templates_structure ON templates (structure);
CREATE INDEX ix_builds_digest ON builds (digest);
CREATE INDEX ix_builds_factors ON builds (factors);
CREATE INDEX ix_builds_foundation ON builds (foundation);
CREATE INDEX ix_build_parts_blob ON build_parts (blob);
CREATE INDEX ix_line_entries_build ON line_entries (build);
CREATE TRIGGER registry_refuse_update BEFORE UPDATE OF id, uuid, created ON registry BEGIN SELECT RAISE(ABORT, 'registry is immutable: no UPDATE'); END;
CREATE TRIGGER blobs_refuse_update BEFORE UPDATE OF digest, size ON blobs BEGIN SELECT RAISE(ABORT, 'blobs is immutable: no UPDATE'); END;
CREATE TRIGGER bases_refuse_update BEFORE UPDATE OF fingerprint, tensors, created ON bases BEGIN SELECT RAISE(ABORT, 'bases is immutable: no UPDATE'); END;
CREATE TRIGGER foundations_refuse_update BEFORE UPDATE OF digest, base, modules, created ON foundations BEGIN SELECT RAISE(ABORT, 'foundations is immutable: no UPDATE'); END;
CREATE TRIGGER foundation_tensors_refuse_update BEFORE UPDATE ON foundation_tensors BEGIN SELECT RAISE(ABORT, 'foundation_tensors is immutable: no UPDATE'); END;
CREATE TRIGGER recipes_refuse_update BEFORE UPDATE ON recipes BEGIN SELECT RAISE(ABORT, 'recipes is immutable: no UPDATE'); END;
CREATE TRIGGER structures_refuse_update BEFORE UPDATE ON structures BEGIN SELECT RAISE(ABORT, 'structures is immutable: no UPDATE'); END;
CREATE TRIGGER templates_refuse_update BEFORE UPDATE ON templates BEGIN SELECT RAISE(ABORT, 'templates is immutable: no UPDATE'); END;
CREATE TRIGGER sources_refuse_update BEFORE UPDATE ON sources BEGIN SELECT RAISE(ABORT, 'sources is immutable: no UPDATE'); END;
CREATE TRIGGER source_files_refuse_update BEFORE UPDATE ON source_files BEGIN SELECT RAISE(ABORT, 'source_files is immutable: no UPDATE'); END;
CREATE TRIGGER attachments_refuse_update BEFORE UPDATE ON attachments BEGIN SELECT RAISE(ABORT, 'attachments is immutable: no UPDATE'); END;
CREATE TRIGGER versions_refuse_update BEFORE UPDATE OF adapter, version, source, lineage, created ON versions BEGIN SELECT RAISE(ABORT, 'versions is immutable: no UPDATE'); END;
CREATE TRIGGER builds_refuse_update BEFORE UPDATE OF id, adapter, version, foundation, template, digest, factors, warnings, created ON builds BEGIN SELECT RAISE(ABORT, 'builds is immutable: no UPDATE'); END;
CREATE TRIGGER releases_refuse_update BEFORE UPDATE ON releases BEGIN SELECT RAISE(ABORT, 'releases is immutable: no UPDATE'); END;
CREATE TRIGGER lines_refuse_update BEFORE UPDATE ON lines BEGIN SELECT RAISE(ABORT, 'lines is immutable: no UPDATE'); END;
CREATE TRIGGER line_entries_refuse_update BEFORE UPDATE ON line_entries BEGIN SELECT RAISE(ABORT, 'line_entries is immutable: no UPDATE'); END;
CREATE TRIGGER manifests_refuse_update BEFORE UPDATE ON manifests BEGIN SELECT RAISE(ABORT, 'manifests is immutable: no UPDATE'); END;
CREATE TRIGGER arms_refuse_update BEFORE UPDATE ON arms BEGIN SELECT RAISE(ABORT, 'arms is immutable: no UPDATE'); END;
CREATE TRIGGER events_refuse_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events is immutable: no UPDATE'); END;
CREATE TRIGGER registry_refuse_delete BEFORE DELETE ON registry BEGIN SELECT RAISE(ABORT, 'registry is immutable: no DELETE'); END;
CREATE TRIGGER versions_refuse_delete BEFORE DELETE ON versions BEGIN SELECT RAISE(ABORT, 'versions is immutable: no DELETE'); END;
CREATE TRIGGER releases_refuse_delete BEFORE DELETE ON releases BEGIN SELECT RAISE(ABORT, 'releases is immutable: no DELETE'); END;
CREATE TRIGGER lines_refuse_delete BEFORE DELETE ON lines BEGIN SELECT RAISE(ABORT, 'lines is immutable: no DELETE'); END;
CREATE TRIGGER line_entries_refuse_delete BEFORE DELETE ON line_entries BEGIN SELECT RAISE(ABORT, 'line_entries is immutable: no DELETE'); END;
CREATE TRIGGER channels_refuse_delete BEFORE DELETE ON channels BEGIN SELECT RAISE(ABORT, 'channels is immutable: no DELETE'); END;
CREATE TRIGGER manifests_refuse_delete BEFORE DELETE ON manifests BEGIN SELECT RAISE(ABORT, 'manifests is immutable: no DELETE'); END;
CREATE TRIGGER arms_refuse_delete BEFORE DELETE ON arms BEGIN SELECT RAISE(ABORT, 'arms is immutable: no DELETE'); END;
CREATE TRIGGER events_refuse_delete BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events is immutable: no DELETE'); END;
CREATE TRIGGER tokens_refuse_update BEFORE UPDATE OF id, name, scope, digest, created ON tokens BEGIN SELECT RAISE(ABORT, 'tokens is immutable: no UPDATE'); END;
CREATE TRIGGER tokens_refuse_delete BEFORE DELETE ON tokens BEGIN SELECT RAISE(ABORT, 'tokens is immutable: no DELETE'); END;
CREATE INDEX ix_release_files_blob ON release_files (blob);
CREATE TRIGGER release_files_refuse_update BEFORE UPDATE ON release_files BEGIN SELECT RAISE(ABORT, 'release_files is immutable: no UPDATE'); END;
CREATE TRIGGER release_files_refuse_delete BEFORE DELETE ON release_files BEGIN SELECT RAISE(ABORT, 'release_files is immutable: no DELETE'); END;
CREATE INDEX ix_proofs_document ON proofs (document);
CREATE INDEX ix_proofs_self_test ON proofs (self_test);
CREATE TRIGGER proofs_refuse_update BEFORE UPDATE ON proofs BEGIN SELECT RAISE(ABORT, 'proofs is immutable: no UPDATE'); END;
COMMIT;
