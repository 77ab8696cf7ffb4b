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
INSERT INTO "entries" VALUES('first',0,'opened','{"space":{"kind":{"choice":["sgd","adam","~~odd"]},"layers":{"int":[1,8]},"lr":{"float":[0.0001,1.0],"log":true},"momentum":{"float":[0.0,0.99],"when":{"kind":["sgd"]}}},"budget":"$9.0 at 3600.0/h","policy":"asha","settings":{"reduction_factor":3},"seed":7,"direction":"max","max_steps":9,"prices":{"validate_epochs":0.25},"workers":2,"target":{"kind":"python","where":"train.py:train"},"format":2}','f794d3f4f6f323d76dcc0b71ec16ee95',1700000000.5);
INSERT INTO "entries" VALUES('first',1,'note','{"topic":"enqueue","config":{"lr":0.1,"layers":3,"kind":"sgd","momentum":0.9}}','d3c0cf48140bd9858def13f71bb9845a',1700000000.5);
INSERT INTO "entries" VALUES('first',2,'order','{"number":0,"trial":0,"config":{"lr":0.1,"layers":3,"kind":"sgd","momentum":0.9},"until":2,"validate":"each","expected_cost":0.5,"reserve":1.5,"why":{"score":"~inf","note":"~~nan"},"memo":{"kernel":[0.5,"~-inf",1e-300]},"check":true,"asked":false,"thinking_s":0.0625,"at":0.125}','d165303218f6687e8152556b68083adb',1700000000.5);
INSERT INTO "entries" VALUES('first',3,'lost','{"trial":0,"held":0,"seconds":0.5,"why":"the worker process was ended by SIGSEGV","death":true,"worker":"1","price_factor":2.0}','1283b89a7514521a2f73628026e00c54',1700000000.5);
INSERT INTO "entries" VALUES('first',4,'receipt','{"order":0,"trial":0,"step":1,"value":0.5,"cost":[0.25,1.0,0.125],"status":"ok","text":"","saved":1,"at":2.0,"worker":"2 on gpu-7","price_factor":0.5,"metrics":{"accuracy":0.875,"gradient":"~inf"}}','d4b587620175a628c9fe6c4c0cac8deb',1700000000.5);
INSERT INTO "entries" VALUES('first',5,'note','{"topic":"check","order":0,"trial":0,"step":2,"seconds":0.375,"went_on":0.625,"resumed":0.625,"same":true}','ac68ddf5cdcff35f2f141e2099a2bbe1',1700000000.5);
INSERT INTO "entries" VALUES('first',6,'receipt','{"order":0,"trial":0,"step":2,"value":0.625,"cost":[0.0,1.0,0.0],"status":"ok","text":"","saved":2,"at":3.5,"worker":"2"}','35ea0595877503f85a02744aa98594c0',1700000000.5);
INSERT INTO "entries" VALUES('first',7,'order','{"number":1,"trial":1,"config":{"lr":0.01,"layers":1,"kind":"~~odd"},"until":3,"validate":"last","expected_cost":null,"reserve":0.0,"why":{},"memo":{},"check":false,"asked":false,"thinking_s":0.0,"at":3.5}','433211426429e3b2c02944157911e299',1700000000.5);
INSERT INTO "entries" VALUES('first',8,'receipt','{"order":1,"trial":1,"step":1,"value":null,"cost":[0.0,0.5,0.0],"status":"ok","text":"","saved":0,"at":4.0}','67fae7840cf9b4129bbef477235220e5',1700000000.5);
INSERT INTO "entries" VALUES('first',9,'receipt','{"order":1,"trial":1,"step":2,"value":null,"cost":[0.0,0.5,0.0],"status":"failed","text":"Traceback\nMemoryError: no more","saved":0,"at":4.5}','70337112207240f380460543404e0efc',1700000000.5);
INSERT INTO "entries" VALUES('first',10,'amended','{"budget":"$12.0 at 3600.0/h","policy":"random_search","settings":{},"workers":1}','cef9684722fb3aa59bc6fa3125c27413',1700000000.5);
INSERT INTO "entries" VALUES('first',11,'order','{"number":2,"trial":0,"config":{"lr":0.1,"layers":3,"kind":"sgd","momentum":0.9},"until":9,"validate":"each","expected_cost":null,"reserve":0.0,"why":{},"memo":{},"check":false,"asked":true,"thinking_s":0.0,"at":5.0}','355785ca58ce892fc3b6e6c3aaec5d41',1700000000.5);
INSERT INTO "entries" VALUES('first',12,'note','{"topic":"thinking","seconds":0.03125}','841ad2d7b3666cd558a855f4b2dd9ca7',1700000000.5);
INSERT INTO "entries" VALUES('second',0,'opened','{"space":{"listed":[{"x":0.001},{"x":1.0}],"log":["x"]},"budget":"5 epochs","policy":"grid","settings":{},"seed":0,"direction":"min","max_steps":1,"prices":{"validate_epochs":0.0},"workers":1,"target":{},"format":2}','af11a9cfe1bd469387bc9af56be7398a',1700000000.5);
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
