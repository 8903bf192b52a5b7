package testbed

// PlantedSecret is the password of a LINSTOR user that every process of the high availability controller is given on the
// bed, where LINSTOR asks for none. It must not appear in anything that a process says.
const PlantedSecret = "geheim-7Qz41x"

// secretEnv is the environment that has it.
var secretEnv = map[string]string{"LS_USERNAME": "testbed", "LS_PASSWORD": PlantedSecret}
