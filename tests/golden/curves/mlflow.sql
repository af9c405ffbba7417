CREATE TABLE "experiments" (
	experiment_id INTEGER NOT NULL,
	name VARCHAR(256) NOT NULL,
	artifact_location VARCHAR(256),
	lifecycle_stage VARCHAR(32),
	creation_time BIGINT,
	last_update_time BIGINT,
	workspace VARCHAR(63) DEFAULT 'default' NOT NULL,
	CONSTRAINT experiment_pk PRIMARY KEY (experiment_id),
	CONSTRAINT experiments_lifecycle_stage CHECK (lifecycle_stage IN ('active', 'deleted')),
	CONSTRAINT uq_experiments_workspace_name UNIQUE (workspace, name)
);
INSERT INTO experiments VALUES (0, 'Default', 's3://nowhere', 'active', 1794914002567, 1794914002567, 'default');
INSERT INTO experiments VALUES (1, 'vit', 's3://nowhere', 'active', 1794914002597, 1794914002597, 'default');
CREATE TABLE "runs" (
	run_uuid VARCHAR(32) NOT NULL,
	name VARCHAR(250),
	source_type VARCHAR(20),
	source_name VARCHAR(500),
	entry_point_name VARCHAR(50),
	user_id VARCHAR(256),
	status VARCHAR(9),
	start_time BIGINT,
	end_time BIGINT,
	source_version VARCHAR(50),
	lifecycle_stage VARCHAR(20),
	artifact_uri VARCHAR(200),
	experiment_id INTEGER, deleted_time BIGINT,
	CONSTRAINT run_pk PRIMARY KEY (run_uuid),
	CONSTRAINT runs_lifecycle_stage CHECK (lifecycle_stage IN ('active', 'deleted')),
	CONSTRAINT source_type CHECK (source_type IN ('NOTEBOOK', 'JOB', 'LOCAL', 'UNKNOWN', 'PROJECT')),
	FOREIGN KEY(experiment_id) REFERENCES experiments (experiment_id),
	CHECK (status IN ('SCHEDULED', 'FAILED', 'FINISHED', 'RUNNING', 'KILLED'))
);
INSERT INTO runs VALUES ('18c9441f1aa1496786d4722c494976bd', 'vit.seed1072', 'UNKNOWN', '', '', 'somebody', 'FINISHED', 1794914002677, 1794914002794, '', 'active', 's3://nowhere/18c9441f1aa1496786d4722c494976bd/artifacts', 1, NULL);
INSERT INTO runs VALUES ('2bf9d852799e426aa5f1ed95265b090b', 'vit.seed2043', 'UNKNOWN', '', '', 'somebody', 'FAILED', 1794914002818, 1794914002882, '', 'active', 's3://nowhere/2bf9d852799e426aa5f1ed95265b090b/artifacts', 1, NULL);
INSERT INTO runs VALUES ('324dcf0f98f84a35881a9d7eace2059a', 'other', 'UNKNOWN', '', '', 'somebody', 'RUNNING', 1794914002910, NULL, '', 'active', 's3://nowhere', 0, NULL);
INSERT INTO runs VALUES ('2d08a20f38554f21b4c5779035b7277c', 'gone', 'UNKNOWN', '', '', 'somebody', 'RUNNING', 1794914002992, NULL, '', 'deleted', 's3://nowhere/2d08a20f38554f21b4c5779035b7277c/artifacts', 1, 1794914003048);
CREATE TABLE "metrics" (
	"key" VARCHAR(250) NOT NULL,
	value FLOAT NOT NULL,
	timestamp BIGINT NOT NULL,
	run_uuid VARCHAR(32) NOT NULL,
	step BIGINT DEFAULT '0' NOT NULL,
	is_nan BOOLEAN DEFAULT '0' NOT NULL,
	CONSTRAINT metric_pk PRIMARY KEY ("key", timestamp, step, run_uuid, value, is_nan),
	FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid),
	CHECK (is_nan IN (0, 1))
);
INSERT INTO metrics VALUES ('overview/reward', 0.0, 1700000000000, '18c9441f1aa1496786d4722c494976bd', 0, 0);
INSERT INTO metrics VALUES ('loss', 0.0, 1700000000000, '18c9441f1aa1496786d4722c494976bd', 0, 1);
INSERT INTO metrics VALUES ('overview/reward', 0.2, 1700000000001, '18c9441f1aa1496786d4722c494976bd', 1000, 0);
INSERT INTO metrics VALUES ('loss', 1.7976931348623157e+308, 1700000000001, '18c9441f1aa1496786d4722c494976bd', 1000, 0);
INSERT INTO metrics VALUES ('overview/reward', 0.4, 1700000000002, '18c9441f1aa1496786d4722c494976bd', 2000, 0);
INSERT INTO metrics VALUES ('loss', 0.6, 1700000000002, '18c9441f1aa1496786d4722c494976bd', 2000, 0);
INSERT INTO metrics VALUES ('overview/reward', 0.6, 1700000000003, '18c9441f1aa1496786d4722c494976bd', 3000, 0);
INSERT INTO metrics VALUES ('loss', 0.4, 1700000000003, '18c9441f1aa1496786d4722c494976bd', 3000, 0);
INSERT INTO metrics VALUES ('overview/reward', 9.0, 1700000000004, '18c9441f1aa1496786d4722c494976bd', 2000, 0);
INSERT INTO metrics VALUES ('overview/reward', 0.8, 1700000000005, '18c9441f1aa1496786d4722c494976bd', 4000, 0);
INSERT INTO metrics VALUES ('loss', 0.19999999999999996, 1700000000005, '18c9441f1aa1496786d4722c494976bd', 4000, 0);
INSERT INTO metrics VALUES ('overview/reward', 1.0, 1700000000006, '18c9441f1aa1496786d4722c494976bd', 5000, 0);
INSERT INTO metrics VALUES ('loss', 0.0, 1700000000006, '18c9441f1aa1496786d4722c494976bd', 5000, 0);
INSERT INTO metrics VALUES ('overview/reward', 0.0, 1700000000000, '2bf9d852799e426aa5f1ed95265b090b', 0, 0);
INSERT INTO metrics VALUES ('loss', 1.0, 1700000000000, '2bf9d852799e426aa5f1ed95265b090b', 0, 0);
INSERT INTO metrics VALUES ('overview/reward', 0.5, 1700000000001, '2bf9d852799e426aa5f1ed95265b090b', 1000, 0);
INSERT INTO metrics VALUES ('loss', 0.5, 1700000000001, '2bf9d852799e426aa5f1ed95265b090b', 1000, 0);
INSERT INTO metrics VALUES ('overview/reward', 1.0, 1700000000002, '2bf9d852799e426aa5f1ed95265b090b', 2000, 0);
INSERT INTO metrics VALUES ('loss', 0.0, 1700000000002, '2bf9d852799e426aa5f1ed95265b090b', 2000, 0);
INSERT INTO metrics VALUES ('overview/reward', 0.0, 1700000000000, '324dcf0f98f84a35881a9d7eace2059a', 0, 0);
INSERT INTO metrics VALUES ('loss', 1.0, 1700000000000, '324dcf0f98f84a35881a9d7eace2059a', 0, 0);
INSERT INTO metrics VALUES ('overview/reward', 0.5, 1700000000001, '324dcf0f98f84a35881a9d7eace2059a', 1000, 0);
INSERT INTO metrics VALUES ('loss', 0.5, 1700000000001, '324dcf0f98f84a35881a9d7eace2059a', 1000, 0);
INSERT INTO metrics VALUES ('overview/reward', 1.0, 1700000000002, '324dcf0f98f84a35881a9d7eace2059a', 2000, 0);
INSERT INTO metrics VALUES ('loss', 0.0, 1700000000002, '324dcf0f98f84a35881a9d7eace2059a', 2000, 0);
INSERT INTO metrics VALUES ('overview/reward', 0.0, 1700000000000, '2d08a20f38554f21b4c5779035b7277c', 0, 0);
INSERT INTO metrics VALUES ('loss', 1.0, 1700000000000, '2d08a20f38554f21b4c5779035b7277c', 0, 0);
INSERT INTO metrics VALUES ('overview/reward', 0.5, 1700000000001, '2d08a20f38554f21b4c5779035b7277c', 1000, 0);
INSERT INTO metrics VALUES ('loss', 0.5, 1700000000001, '2d08a20f38554f21b4c5779035b7277c', 1000, 0);
INSERT INTO metrics VALUES ('overview/reward', 1.0, 1700000000002, '2d08a20f38554f21b4c5779035b7277c', 2000, 0);
INSERT INTO metrics VALUES ('loss', 0.0, 1700000000002, '2d08a20f38554f21b4c5779035b7277c', 2000, 0);
CREATE TABLE "params" (
	"key" VARCHAR(250) NOT NULL,
	value VARCHAR(8000) NOT NULL,
	run_uuid VARCHAR(32) NOT NULL,
	CONSTRAINT param_pk PRIMARY KEY ("key", run_uuid),
	FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid)
);
INSERT INTO params VALUES ('seed', '1072', '18c9441f1aa1496786d4722c494976bd');
INSERT INTO params VALUES ('lr', '0.1', '18c9441f1aa1496786d4722c494976bd');
INSERT INTO params VALUES ('net', 'mlp', '18c9441f1aa1496786d4722c494976bd');
INSERT INTO params VALUES ('seed', '3', '324dcf0f98f84a35881a9d7eace2059a');
CREATE TABLE "tags" (
	"key" VARCHAR(250) NOT NULL,
	value VARCHAR(8000),
	run_uuid VARCHAR(32) NOT NULL,
	CONSTRAINT tag_pk PRIMARY KEY ("key", run_uuid),
	FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid)
);
INSERT INTO tags VALUES ('mlflow.source.git.commit', 'c0ffee', '18c9441f1aa1496786d4722c494976bd');
INSERT INTO tags VALUES ('mlflow.user', 'somebody', '18c9441f1aa1496786d4722c494976bd');
INSERT INTO tags VALUES ('mlflow.runName', 'vit.seed1072', '18c9441f1aa1496786d4722c494976bd');
INSERT INTO tags VALUES ('mlflow.source.git.commit', 'c0ffee', '2bf9d852799e426aa5f1ed95265b090b');
INSERT INTO tags VALUES ('mlflow.user', 'somebody', '2bf9d852799e426aa5f1ed95265b090b');
INSERT INTO tags VALUES ('mlflow.runName', 'vit.seed2043', '2bf9d852799e426aa5f1ed95265b090b');
INSERT INTO tags VALUES ('mlflow.source.git.commit', 'c0ffee', '324dcf0f98f84a35881a9d7eace2059a');
INSERT INTO tags VALUES ('mlflow.user', 'somebody', '324dcf0f98f84a35881a9d7eace2059a');
INSERT INTO tags VALUES ('mlflow.runName', 'other', '324dcf0f98f84a35881a9d7eace2059a');
INSERT INTO tags VALUES ('mlflow.source.git.commit', 'c0ffee', '2d08a20f38554f21b4c5779035b7277c');
INSERT INTO tags VALUES ('mlflow.user', 'somebody', '2d08a20f38554f21b4c5779035b7277c');
INSERT INTO tags VALUES ('mlflow.runName', 'gone', '2d08a20f38554f21b4c5779035b7277c');
