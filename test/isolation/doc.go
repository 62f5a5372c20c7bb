// Package isolation looks out of a sandbox, as code that wants to get out
// would, and sees nothing of the host.
package isolation
