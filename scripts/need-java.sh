#!/bin/sh
# Spark needs Java 17 or newer. One line that says how to get it.
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
if [ -z "$version" ] || [ "$version" -lt 17 ]; then
    echo "Penstock runs on Spark, which needs Java 17 or newer (found: ${version:-none}): install e.g. openjdk-17-jre-headless (Debian, Ubuntu), 'brew install openjdk@17' (macOS), or set JAVA_HOME." >&2
    exit 1
fi
