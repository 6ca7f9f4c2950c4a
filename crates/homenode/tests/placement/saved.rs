//! Does what ALTER SYSTEM has set hold after the next start? On any machine.

use super::*;

#[test]
fn alter_system_outlives_the_server() {
    // The pool's size is on the command line, which counts more.
    let mut server = Server::with(settings("16MiB", &["--log-level", "warn"]));
    let shown = |server: &Server| {
        let mut client = server.client();
        (one::<String>(&mut client, "show homenode.pool_policy"), one::<String>(&mut client, "show homenode.pool_size"))
    };
    let values = |policy: &str, size: &str| (policy.to_owned(), size.to_owned());
    let alter = "alter system set homenode.pool_policy = 'local'; alter system set homenode.pool_size = '32MiB'";
    server.client().batch_execute(alter).unwrap();
    assert_eq!(shown(&server), values("local", "32 MiB"));
    server.stop();
    server.restart();
    assert_eq!(shown(&server), values("local", "16 MiB"));
    // SET is for this server only.
    server.client().batch_execute("set homenode.pool_policy = 'default'").unwrap();
    server.kill();
    server.restart();
    assert_eq!(shown(&server).0, "local");
    // A refused value is not kept.
    fails(server.client().batch_execute("alter system set homenode.pool_policy = 'bind=77'"), "22023");
    let file = server.data().join("homenode.auto.conf");
    // Nor is one in effect that cannot be kept.
    let kept = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    fails(server.client().batch_execute("alter system set homenode.pool_policy = 'interleave'"), "58030");
    fails(server.client().batch_execute("alter system reset all"), "58030");
    assert_eq!(shown(&server).0, "local");
    fs::remove_dir(&file).unwrap();
    fs::write(&file, kept).unwrap();
    assert!(fs::read_to_string(&file).unwrap().contains("homenode.pool_policy = 'local'"));
    server.stop();
    fs::write(&file, "homenode.pool_policy = 'bind=77'\nhomenode.colour = 'red'\n\u{1}=").unwrap();
    server.restart();
    assert_eq!(shown(&server).0, "interleave");
    let said = server.output();
    assert!(said.contains("there is no node 77") && said.contains("no setting homenode.colour"), "{said}");
    server.client().batch_execute("alter system set homenode.pool_policy = 'local'; alter system reset all").unwrap();
    assert_eq!(shown(&server), values("interleave", "16 MiB"));
    server.stop();
    server.restart();
    assert_eq!(shown(&server).0, "interleave");
    assert!(!fs::read_to_string(&file).unwrap().contains("local"));
}
