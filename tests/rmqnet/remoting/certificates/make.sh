#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes new certificates for the TLS tests: an authority, a server for localhost and 127.0.0.1,
# and a client whose key has the password "opensesame". They protect nothing. They are valid since
# 2020, whatever the clock says where the tests run.
set -e
cd "$(dirname "$0")"
mkdir made
cat > made/ca.cnf <<'END'
[ca]
default_ca = authority
[authority]
database = made/index
serial = made/serial
new_certs_dir = made
default_md = sha256
policy = any
[any]
commonName = supplied
[root]
basicConstraints = critical,CA:true
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[server]
subjectAltName = DNS:localhost,IP:127.0.0.1
[client]
extendedKeyUsage = clientAuth
END
: > made/index
echo 01 > made/serial
make_one() { # NAME SUBJECT EXTENSIONS OPTIONS
    name=$1 subject=$2 extensions=$3
    shift 3
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "made/$name.key"
    openssl req -new -key "made/$name.key" -subj "/CN=$subject" -out "made/$name.csr"
    openssl ca -batch -notext -config made/ca.cnf -extensions "$extensions" -keyfile made/ca.key \
        -startdate 20200101000000Z -enddate 21200101000000Z \
        -in "made/$name.csr" -out "$name.pem" "$@"
}
make_one ca "Test authority" root -selfsign
make_one server localhost server -cert ca.pem
make_one client "Test client" client -cert ca.pem
cp made/server.key server.key
openssl pkcs8 -topk8 -in made/client.key -out client.key -passout pass:opensesame
chmod 644 ./*.key
rm -r made
