"""The fleet's own certificate authority (RFC 5280); its root is in every credential.

It signs for bus servers, for managers' TCP listeners, and for people who come there. Each kind is good for its own use only.
"""

import datetime as dt
import ipaddress
import secrets
from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cwdp.errors import ConfigError
from cwdp.shared.identity.credential import SERVER_NAME

ROOT_DAYS, SERVER_DAYS = 3_650, 825
SKEW = dt.timedelta(hours=1)
"""Before now that certificates hold already: hosts' clocks may be behind."""


def new_root() -> tuple[str, str]:
    """A new authority: its key and its certificate, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"cwdp fleet {secrets.token_hex(4)}")])
    certificate = (
        _builder(name, name, key.public_key(), ROOT_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _key_pem(key), _pem(certificate)


def new_server(root_key: str, root_certificate: str, host: str | None = None) -> tuple[str, str]:
    """A bus server's key and certificate, in PEM; servers of a cluster, which know each other by `host`, show it too."""
    key = ec.generate_private_key(ec.SECP256R1())
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    names = _names([SERVER_NAME] if host is None else [SERVER_NAME, host])
    builder = _leaf(root_certificate, key.public_key(), _subject(SERVER_NAME), uses, SERVER_DAYS)
    return _key_pem(key), _signed(builder.add_extension(names, critical=False), root_key)


def new_listener(root_key: str, root_certificate: str, names: Sequence[str]) -> tuple[str, str]:
    """A key and a certificate for who is reached by these host names and addresses over HTTPS, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    uses = [ExtendedKeyUsageOID.SERVER_AUTH]
    builder = _leaf(root_certificate, key.public_key(), _subject("cwdp manager"), uses, SERVER_DAYS)
    return _key_pem(key), _signed(builder.add_extension(_names(names), critical=False), root_key)


def new_client(
    root_key: str, root_certificate: str, public_key: str, *, name: str, role: str, days: float
) -> str:
    """A certificate, in PEM, for who has the key whose public half is given, in PEM.

    Raises:
        ConfigError: that is no public key.
    """
    try:
        public = serialization.load_pem_public_key(public_key.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError("that is no public key in PEM", "see: cwdp fleet certificate --help") from error
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise ConfigError("that is no key on an elliptic curve", "see: cwdp fleet certificate --help")
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = _leaf(root_certificate, public, _subject(name, f"cwdp {role}"), uses, days)
    return _signed(builder, root_key)


def der(certificate: str) -> bytes:
    """A certificate in PEM as TLS shows it."""
    return x509.load_pem_x509_certificate(certificate.encode()).public_bytes(serialization.Encoding.DER)


def _leaf(
    root_certificate: str,
    public_key: ec.EllipticCurvePublicKey,
    subject: x509.Name,
    uses: Sequence[x509.ObjectIdentifier],
    days: float,
) -> x509.CertificateBuilder:
    root = x509.load_pem_x509_certificate(root_certificate.encode())
    signer = root.public_key()
    assert isinstance(signer, ec.EllipticCurvePublicKey)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer)
    return (
        _builder(subject, root.subject, public_key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(issuer, critical=False)
    )


def _signed(builder: x509.CertificateBuilder, root_key: str) -> str:
    signer = serialization.load_pem_private_key(root_key.encode(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    return _pem(builder.sign(signer, hashes.SHA256()))


def _subject(name: str, unit: str | None = None) -> x509.Name:
    units = [] if unit is None else [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit)]
    return x509.Name([*units, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _names(names: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_name(each) for each in names])


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
