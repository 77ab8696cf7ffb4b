BEGIN TRANSACTION;
CREATE TABLE entries (
	study TEXT NOT NULL,
	seq INTEGER NOT NULL,
	kind TEXT NOT NULL,
	body TEXT NOT NULL,
	sum TEXT NOT NULL,
	at DOUBLE NOT NULL,
	PRIMARY KEY (study, seq)
)
 WITHOUT ROWID
;
INSERT INTO "entries" VALUES('first',0,'opened','{"budget":"60.0s","direction":"max","format":1,"max_steps":3,"policy":"successive_halving","prices":{"validate_epochs":0.0},"seed":20240229,"settings":{"reduction_factor":3},"space":{"kind":{"choice":["adam","sgd","~~odd"]},"layers":{"int":[1,4]},"lr":{"float":[0.0001,1.0],"log":true},"momentum":{"float":[0.0,0.99],"when":{"kind":["sgd"]}}},"target":{"fingerprint":"0f","kind":"python","name":"train.py:train"},"workers":1}','4e36c0489e4689e08066b130b2a02d24',1700000000.125);
INSERT INTO "entries" VALUES('first',1,'note','{"config":{"kind":"adam","layers":2,"lr":0.01},"topic":"enqueue"}','54cbc6d38a401e61e1a20a9de96fed88',1700000000.125);
INSERT INTO "entries" VALUES('first',2,'order','{"at":0.0,"check":false,"config":{"kind":"adam","layers":2,"lr":0.01},"expected_cost":null,"memo":{},"number":0,"reserve":0.0,"thinking_s":0.0625,"trial":0,"until":2,"validate":"each","why":{"queued":true,"rung":0}}','a28e51b1f0f93f4c4c9efa6f56958b12',1700000004.125);
INSERT INTO "entries" VALUES('first',3,'receipt','{"at":2.0,"cost":[0.25,1.5,0.125],"order":0,"saved":1,"status":"ok","step":1,"text":"","trial":0,"value":0.625}','f05f2d873472853bd7cc7bf33ddb26ae',1700000006.125);
INSERT INTO "entries" VALUES('first',4,'receipt','{"at":4.0,"cost":[0.0,1.5,0.125],"order":0,"saved":2,"status":"ok","step":2,"text":"","trial":0,"value":0.75}','af710710fd7f4a0bbd527e92f3fc2a5c',1700000008.125);
INSERT INTO "entries" VALUES('first',5,'order','{"at":4.0,"check":true,"config":{"kind":"sgd","layers":3,"lr":0.1,"momentum":0.9},"expected_cost":4.875,"memo":{"kernel":[0.5,"~-inf",1e-300]},"number":1,"reserve":5.625,"thinking_s":0.03125,"trial":1,"until":3,"validate":"last","why":{"note":"~~nan","score":"~inf"}}','34aeb3c4624b5034a994ae7abdce5561',1700000010.125);
INSERT INTO "entries" VALUES('first',6,'receipt','{"at":6.0,"cost":[0.25,1.5,0.125],"order":1,"saved":0,"status":"ok","step":1,"text":"","trial":1,"value":null}','0f3fd653d8637f026b17c481fe3b7726',1700000012.125);
INSERT INTO "entries" VALUES('first',7,'note','{"order":1,"same":true,"seconds":1.75,"step":2,"topic":"check","trial":1}','733da9a5797c4ea0f60897b06c613c11',1700000014.125);
INSERT INTO "entries" VALUES('first',8,'receipt','{"at":10.0,"cost":[0.0,1.5,0.125],"order":1,"saved":2,"status":"ok","step":2,"text":"","trial":1,"value":null}','9d4a99901cb4d5ad6b4a73a0f24e4416',1700000016.125);
INSERT INTO "entries" VALUES('first',9,'lost','{"held":1,"seconds":2.5,"trial":1,"why":"the process that ran the study ended: \u00e9 \u65e5\u672c"}','fbdafa275cc2587929ab27850e8e01b9',1700000018.125);
INSERT INTO "entries" VALUES('first',10,'receipt','{"at":12.0,"cost":[0.0,1.5,0.125],"order":1,"saved":2,"status":"ok","step":2,"text":"","trial":1,"value":null}','a4d6b029e2904c21b1379d2e1464e111',1700000020.125);
INSERT INTO "entries" VALUES('first',11,'receipt','{"at":14.0,"cost":[0.0,1.5,0.125],"order":1,"saved":3,"status":"ok","step":3,"text":"","trial":1,"value":0.875}','4d23c0939b5d91686c19e68d976da609',1700000022.125);
INSERT INTO "entries" VALUES('first',12,'amended','{"budget":"90.0s","policy":"random_search","settings":{},"workers":2}','f7b66db84de57e77df6f9ac67ac9cba3',1700000024.125);
INSERT INTO "entries" VALUES('first',13,'order','{"at":14.0,"check":false,"config":{"kind":"~~odd","layers":1,"lr":0.5},"expected_cost":null,"memo":{},"number":2,"reserve":0.0,"thinking_s":0.0,"trial":2,"until":3,"validate":"each","why":{}}','a923590d78a1d7df02534a10db2d7d84',1700000026.125);
INSERT INTO "entries" VALUES('first',14,'receipt','{"at":16.0,"cost":[0.25,1.5,0.125],"order":2,"saved":0,"status":"diverged","step":1,"text":"the value is nan","trial":2,"value":"~nan"}','f27f5a30782324722f87443819299005',1700000028.125);
INSERT INTO "entries" VALUES('first',15,'order','{"at":16.0,"check":false,"config":{"kind":"adam","layers":4,"lr":0.001},"expected_cost":null,"memo":{},"number":3,"reserve":0.0,"thinking_s":0.0,"trial":3,"until":3,"validate":"each","why":{}}','85a484e357bbb18d2848094d1a0b33b7',1700000030.125);
INSERT INTO "entries" VALUES('first',16,'receipt','{"at":18.0,"cost":[0.25,1.5,0.125],"order":3,"saved":1,"status":"ok","step":1,"text":"","trial":3,"value":0.5}','d0263e5edb344c6ce86404631b9c9b2d',1700000032.125);
INSERT INTO "entries" VALUES('first',17,'receipt','{"at":19.0,"cost":[0.0,0.5,0],"order":3,"saved":1,"status":"failed","step":2,"text":"Traceback\nMemoryError: no more","trial":3,"value":null}','7a2dde591a044f70f744462e181d2bc8',1700000034.125);
INSERT INTO "entries" VALUES('first',18,'order','{"at":19.0,"check":false,"config":{"kind":"adam","layers":2,"lr":0.02},"expected_cost":null,"memo":{},"number":4,"reserve":0.0,"thinking_s":0.0,"trial":0,"until":3,"validate":"each","why":{}}','3c55e889f9b6dfa5c7c38f1afcd612b6',1700000036.125);
INSERT INTO "entries" VALUES('second',0,'opened','{"budget":"$20.0 at 2.5/h per machine","direction":"min","format":1,"max_steps":1,"policy":"grid","prices":{"validate_epochs":0.0},"seed":1,"settings":{},"space":{"listed":[{"x":1},{"x":2}]},"target":{},"workers":1}','b344e0e892ab4698801753c44c95ea19',1700000038.125);
CREATE TABLE leases (
	study TEXT NOT NULL,
	holder TEXT NOT NULL,
	host TEXT NOT NULL,
	pid INTEGER NOT NULL,
	machine TEXT NOT NULL,
	started TEXT NOT NULL,
	heard_at DOUBLE NOT NULL,
	entries INTEGER NOT NULL,
	running TEXT NOT NULL,
	PRIMARY KEY (study)
);
COMMIT;
