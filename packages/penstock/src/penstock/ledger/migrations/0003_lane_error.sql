-- Why a lane does not go on, where that is no batch's fault: its source can't be started, opened or read. NULL = it does.
ALTER TABLE lane ADD COLUMN error TEXT;
