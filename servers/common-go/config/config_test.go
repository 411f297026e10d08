package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const url = "postgres://lab:secret@127.0.0.1:5432/lab"

func TestAURLMayComeInAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(path, []byte(url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ADDR", "127.0.0.1:8080")
	t.Setenv("DATABASE_URL_FILE", path)
	read, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	if read.Database == nil || read.Database.ConnConfig.Password != "secret" {
		t.Fatalf("the URL of the file was not read: %+v", read.Database)
	}
}

func TestAFileThatIsNotThereIsOneSentence(t *testing.T) {
	t.Setenv("ADDR", "127.0.0.1:8080")
	t.Setenv("DATABASE_URL_FILE", filepath.Join(t.TempDir(), "nothing"))
	_, err := Read()
	if err == nil || !strings.HasPrefix(err.Error(), "DATABASE_URL_FILE must be a file") {
		t.Fatalf("got %v", err)
	}
}

func TestAWrongURLIsNotShown(t *testing.T) {
	t.Setenv("ADDR", "127.0.0.1:8080")
	t.Setenv("DATABASE_URL", "postgres://lab:secret@h:port/lab")
	_, err := Read()
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Fatalf("got %v", err)
	}
}
