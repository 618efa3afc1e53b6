// Prints every setting of Kafka as JSON: run by record_settings.py, with Kafka's jars.

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.StringJoiner;
import java.util.TreeMap;

import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.ConfigKey;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

public class DumpSettings {
    // Numbers that a setting without bounds of its own may or may not take.
    private static final List<String> PROBES = List.of("-3", "-2", "-1", "0", "1", "5");

    public static void main(String[] arguments) {
        Map<String, ConfigKey> broker = new TreeMap<>(AbstractKafkaConfig.CONFIG_DEF.configKeys());
        DynamicConfig.Broker.configKeys().forEach(broker::putIfAbsent);
        System.out.println("{");
        System.out.println("\"broker\": " + dump(broker, true) + ",");
        System.out.println("\"topic\": " + dump(LogConfig.configKeys(), false) + ",");
        System.out.println("\"group\": " + dump(GroupConfig.CONFIG_DEF.configKeys(), false));
        System.out.println("}");
    }

    private static String dump(Map<String, ConfigKey> keys, boolean ofBroker) {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        StringJoiner lines = new StringJoiner(",\n", "{\n", "\n}");
        for (ConfigKey key : new TreeMap<>(keys).values()) {
            StringJoiner fields = new StringJoiner(", ", "{", "}");
            fields.add("\"type\": " + quoted(key.type));
            if (key.hasDefault()) {
                fields.add("\"default\": " + quoted(ConfigDef.convertToString(key.defaultValue, key.type)));
            }
            fields.add("\"valid\": " + quoted(key.validator));
            if (ofBroker) {
                boolean isQuota = !AbstractKafkaConfig.CONFIG_DEF.configKeys().containsKey(key.name);
                String mode = isQuota ? "quota" : modes.getOrDefault(key.name, "read-only");
                fields.add("\"mode\": " + quoted(mode));
                if (key.validator == null && isNumber(key.type) && !isQuota) {
                    fields.add("\"refuses\": " + refused(key.name));
                }
            }
            lines.add(" " + quoted(key.name) + ": " + fields);
        }
        return lines.toString();
    }

    private static boolean isNumber(Type type) {
        return type == Type.INT || type == Type.LONG || type == Type.SHORT || type == Type.DOUBLE;
    }

    private static List<String> refused(String name) {
        List<String> refused = new ArrayList<>();
        for (String probe : PROBES) {
            Properties properties = new Properties();
            properties.putAll(Map.of(
                "process.roles", "broker",
                "controller.listener.names", "CONTROLLER",
                "controller.quorum.bootstrap.servers", "localhost:9093"));
            if (!name.equals("broker.id")) {
                properties.put("node.id", "1");
            }
            properties.put(name, probe);
            try {
                new KafkaConfig(properties);
            } catch (RuntimeException refusal) {
                refused.add(quoted(probe));
            }
        }
        return refused;
    }

    private static String quoted(Object value) {
        return value == null ? "null" : "\"" + value.toString().replace("\"", "\\\"") + "\"";
    }
}
